//! Parser of fio's job files (ini syntax).

use super::job::{Job, Note};

/// Jobs of a file, and notes about keys without effect.
#[derive(Debug)]
pub struct JobFile {
    /// Jobs in the order of the file.
    pub jobs: Vec<Job>,
    /// Keys without effect, with their line numbers.
    pub notes: Vec<(usize, Note)>,
}

/// Error in a job file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct JobFileError {
    /// Name of the file.
    pub file: String,
    /// Line number, starting at 1.
    pub line: usize,
    /// Description of the error.
    pub why: String,
}

/// Parses a job file. A `[global]` section sets defaults for the jobs after it; each other section is a job.
///
/// # Errors
/// The error of the first invalid line.
pub fn parse(file: &str, text: &str) -> Result<JobFile, JobFileError> {
    let mut parsed = JobFile {
        jobs: Vec::new(),
        notes: Vec::new(),
    };
    let mut global = Job::new("global");
    let mut section = Section::None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let wrong = |why: String| JobFileError {
            file: file.to_owned(),
            line: number,
            why,
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest
                .strip_suffix(']')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .ok_or_else(|| wrong("a section is [NAME]".to_owned()))?;
            section = if name == "global" {
                Section::Global
            } else {
                let mut job = global.clone();
                name.clone_into(&mut job.name);
                parsed.jobs.push(job);
                Section::Job
            };
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (line, None),
        };
        let job = match section {
            Section::Global => &mut global,
            Section::Job => parsed.jobs.last_mut().expect("its section has made it"),
            Section::None => {
                return Err(wrong(format!("{key} stands before the first [section]")));
            }
        };
        let note = job.set(key, value).map_err(wrong)?;
        parsed.notes.extend(note.map(|note| (number, note)));
    }
    if parsed.jobs.is_empty() {
        return Err(JobFileError {
            file: file.to_owned(),
            line: text.lines().count(),
            why: "the file has no job: add a section such as [job1]".to_owned(),
        });
    }
    Ok(parsed)
}

enum Section {
    None,
    Global,
    Job,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
; as fio has them
[global]
ioengine=libaio
bs=4k
iodepth = 16
verify=crc32c

[writer]
rw=randwrite
size=16m

[global]
bs=128k

# reads what was written
[reader]
stonewall
rw=read
iodepth=4
";

    #[test]
    fn globals_are_for_the_jobs_behind_them() {
        let file = parse("f", FILE).unwrap();
        let [writer, reader] = &file.jobs[..] else {
            panic!("two jobs, not {}", file.jobs.len())
        };
        assert_eq!(
            (writer.name.as_str(), writer.bs_max, writer.iodepth),
            ("writer", 4096, 16)
        );
        assert_eq!(
            (reader.name.as_str(), reader.bs_max, reader.iodepth),
            ("reader", 131_072, 4)
        );
        assert!(reader.stonewall && reader.verify && !writer.stonewall);
        let [(3, note)] = &file.notes[..] else {
            panic!("one note: {:?}", file.notes)
        };
        assert_eq!(note.key, "ioengine");
    }

    #[test]
    fn errors_name_file_and_line() {
        let why = |text| parse("x.fio", text).unwrap_err().to_string();
        assert_eq!(
            why("bs=4k\n"),
            "x.fio:1: bs stands before the first [section]"
        );
        assert_eq!(why("[j\n"), "x.fio:1: a section is [NAME]");
        assert!(why("[j]\n\nbs=\n").starts_with("x.fio:3: bs: \"\" is not a size"));
        assert!(why("[j]\nrw\n").starts_with("x.fio:2: rw requires a value"));
        assert!(why("[global]\nbs=4k\n").contains("the file has no job"));
    }
}
