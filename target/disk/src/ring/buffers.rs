use super::*;

impl Ring {
    /// Registers `mapping` as a fixed buffer until [`Self::remove_buffer`]. Returns the slot.
    ///
    /// # Errors
    /// All slots are taken, or the kernel rejects the mapping. If only the limit on locked memory
    /// is exceeded, the call succeeds, but the buffer is not pinned.
    pub fn add_buffer(&mut self, mapping: &Arc<Mapping>) -> io::Result<u16> {
        let slot = self
            .buffers
            .iter()
            .position(Option::is_none)
            .ok_or_else(|| io::Error::other(format!("all {BUFFERS_MAX} fixed buffers taken")))?;
        let iovec = libc::iovec {
            iov_base: mapping.addr() as *mut libc::c_void,
            iov_len: mapping.len(),
        };
        // SAFETY: the ring keeps the mapping alive while it is registered.
        let registered = unsafe {
            self.uring
                .submitter()
                .register_buffers_update(slot as u32, &[iovec], None)
        };
        self.pinned[slot] = match registered {
            Ok(_) => true,
            Err(error) if memlock::is_limit(&error) => {
                memlock::report(mapping.len());
                false
            }
            Err(error) => return Err(error),
        };
        if self.in_flight == 0 && self.drives_out() == 0 {
            self.retired.clear();
        }
        self.add_buffer_to_drives(slot, mapping);
        self.buffers[slot] = Some(Arc::clone(mapping));
        Ok(slot as u16)
    }

    #[inline(always)]
    pub(super) fn is_pinned(&self, span: Span) -> bool {
        self.pinned[usize::from(span.buffer)]
    }

    /// Unregisters a fixed buffer. Its pages stay valid for pending operations.
    pub fn remove_buffer(&mut self, slot: u16) -> io::Result<()> {
        let index = usize::from(slot);
        self.remove_buffer_from_drives(index)?;
        if !std::mem::take(&mut self.pinned[index]) {
            let mapping = self.buffers[index].take();
            if self.in_flight > 0 || self.drives_out() > 0 {
                self.retired.extend(mapping);
            }
            return Ok(());
        }
        if self.drives_out() > 0 {
            // The memory stays allocated, because pending commands use its address if a ring for
            // drives could not pin it.
            self.retired.extend(self.buffers[index].clone());
        }
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: an empty entry names no memory.
        unsafe {
            self.uring
                .submitter()
                .register_buffers_update(u32::from(slot), &[empty], None)?;
        }
        self.buffers[usize::from(slot)] = None;
        Ok(())
    }

    pub(crate) fn zeroes(&self, length: u32) -> Span {
        let mapping = self.buffers[usize::from(ZEROES_SLOT)].as_ref();
        let addr = mapping.expect("the zeroes are never removed").addr();
        let whole = Span {
            buffer: ZEROES_SLOT,
            addr,
            length: ZEROES,
        };
        whole.part(0, length)
    }

    pub fn peek(&self, span: Span, out: &mut [u8]) {
        assert!(
            out.len() <= span.length as usize,
            "{} bytes of {span:?}",
            out.len()
        );
        let (mapping, offset) = self.locate(span);
        mapping.read(offset, out);
    }

    pub fn copy_span(&self, from: Span, to: Span) {
        assert_eq!(from.length, to.length, "{from:?} to {to:?}");
        let ((source, at), (target, target_at)) = (self.locate(from), self.locate(to));
        source.copy_to(at, target, target_at, from.length as usize);
    }

    /// Compares two spans of the same length. The bytes are copied first, because no reference may
    /// exist to memory that devices may write.
    pub fn equal(&self, one: Span, other: Span) -> bool {
        const PIECE: usize = 4096;
        assert_eq!(one.length, other.length, "{one:?} and {other:?}");
        let ((one_in, one_at), (other_in, other_at)) = (self.locate(one), self.locate(other));
        let (mut left, mut right) = ([0; PIECE], [0; PIECE]);
        let length = one.length as usize;
        (0..length).step_by(PIECE).all(|done| {
            let piece = PIECE.min(length - done);
            one_in.read(one_at + done, &mut left[..piece]);
            other_in.read(other_at + done, &mut right[..piece]);
            left[..piece] == right[..piece]
        })
    }

    pub(crate) fn copy_in(&self, span: Span, from: &Mapping, at: usize) {
        let (mapping, offset) = self.locate(span);
        from.copy_to(at, mapping, offset, span.length as usize);
    }

    pub(crate) fn copy_out(&self, span: Span, to: &Mapping, at: usize) {
        let (mapping, offset) = self.locate(span);
        mapping.copy_to(offset, to, at, span.length as usize);
    }

    #[cold]
    pub(super) fn memory(&self, span: Span) -> Memory {
        let (_, at) = self.locate(span);
        let mapping = self.buffers[usize::from(span.buffer)].as_ref();
        Memory {
            mapping: Arc::clone(mapping.expect("the span was located")),
            at,
            length: span.length as usize,
        }
    }

    pub(super) fn locate(&self, span: Span) -> (&Mapping, usize) {
        let mapping = self.buffers[usize::from(span.buffer)].as_deref();
        let mapping = mapping.filter(|m| m.contains(span.addr, u64::from(span.length)));
        let mapping = mapping.unwrap_or_else(|| panic!("{span:?} lies outside its fixed buffer"));
        (mapping, (span.addr - mapping.addr()) as usize)
    }
}
