use super::*;

impl Ring {
    /// `handover` selects the kinds of operations that go to other threads.
    pub(crate) fn add_file(&mut self, open: Open, handover: Handover) -> io::Result<FileSlot> {
        let fd = open.as_raw_fd();
        if let Some(disk) = SimulatedDisk::find(fd) {
            return Ok(self.add_simulated(disk));
        }
        let rest = self.files[self.files_from..].iter();
        let slot = self.files_from + rest.take_while(|file| file.is_some()).count();
        if slot == self.files_max {
            let count = self.files_max;
            return Err(io::Error::other(format!(
                "all {count} fixed files are taken"
            )));
        }
        self.uring
            .submitter()
            .register_files_update(slot as u32, &[fd])?;
        if slot == self.files.len() {
            self.files.push(None);
        }
        self.files[slot] = Some(open);
        self.files_from = slot + 1;
        Ok(FileSlot {
            index: slot as u32,
            handover,
        })
    }

    /// Unregisters the fixed files. Submitted operations complete; other operations fail with
    /// `EBADF` or `ECANCELED`.
    pub fn remove_all_files(&mut self) -> io::Result<()> {
        let settled = &mut self.settled;
        self.apart.close(|tag| settled.push_back(cancelled(tag)));
        self.remove_all_drives()?;
        if self.files.is_empty() {
            return Ok(());
        }
        let none = vec![-1; self.files.len()];
        self.uring.submitter().register_files_update(0, &none)?;
        self.files_removed.extend(self.files.drain(..).flatten());
        self.files_from = 0;
        Ok(())
    }

    /// Unregisters a fixed file, which must have no pending operations.
    pub fn remove_file(&mut self, slot: FileSlot) -> io::Result<()> {
        if let (Some(place), Some(attachment)) = (slot.simulated(), &mut self.simulated) {
            attachment.remove(place);
            return Ok(());
        }
        if let Some(drive) = slot.drive() {
            return self.remove_drive(drive);
        }
        self.uring
            .submitter()
            .register_files_update(slot.index, &[-1])?;
        self.files[slot.index as usize] = None;
        self.files_from = self.files_from.min(slot.index as usize);
        Ok(())
    }
}
