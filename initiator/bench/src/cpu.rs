use std::fs;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuUse {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) switches: u64,
    pub(super) major_faults: u64,
    pub(super) minor_faults: u64,
}

/// USER_HZ: clock ticks per second in /proc/PID/stat.
const TICKS_A_SECOND: f64 = 100.0;

impl CpuUse {
    pub(super) fn of_this_thread() -> Self {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self::parse(&stat, &status)
    }

    fn parse(stat: &str, status: &str) -> Self {
        // The program name in parentheses may contain spaces and parentheses (proc_pid_stat(5)).
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
        let field = |number: usize| {
            let text = fields.get(number - 3);
            text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        let switches = status
            .lines()
            .filter(|line| line.contains("voluntary_ctxt_switches:"))
            .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .sum();
        Self {
            user_s: field(14) as f64 / TICKS_A_SECOND,
            system_s: field(15) as f64 / TICKS_A_SECOND,
            switches,
            major_faults: field(12),
            minor_faults: field(10),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.switches += other.switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_where_proc_has_them() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 70 8 9 10 250 125 13 14";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        let cpu = CpuUse::parse(stat, status);
        assert_eq!((cpu.user_s, cpu.system_s), (2.5, 1.25));
        assert_eq!(
            (cpu.minor_faults, cpu.major_faults, cpu.switches),
            (70, 9, 42)
        );
    }
}
