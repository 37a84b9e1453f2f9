//! Detection of SIGINT and SIGTERM.
//!
//! After a signal, fio waits until all I/Os have ended, and does not notify the engine. The
//! handlers of this module therefore set a flag, and then call fio's handlers.
//!
//! Why `unsafe` here: the module installs signal handlers, which only store a flag and call fio's
//! handlers.

use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{c_int, c_void, sigaction, siginfo_t};

const SIGNALS: [c_int; 2] = [libc::SIGINT, libc::SIGTERM];

static IS_DUE: AtomicBool = AtomicBool::new(false);
static BEFORE: OnceLock<[Option<Handler>; SIGNALS.len()]> = OnceLock::new();

type WithInfo = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

#[derive(Clone, Copy)]
enum Handler {
    Plain(extern "C" fn(c_int)),
    WithInfo(WithInfo),
}

/// Installs the handlers, except for a signal that fio does not handle.
pub(crate) fn watch() {
    let before = BEFORE.get_or_init(|| SIGNALS.map(before));
    for (signal, before) in SIGNALS.iter().zip(before) {
        if before.is_some() {
            install(*signal);
        }
    }
}

pub(crate) fn is_due() -> bool {
    IS_DUE.load(Relaxed)
}

fn current(signal: c_int) -> sigaction {
    let mut current = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: `current` is valid for the result, and all zeroes are a valid `sigaction`.
    unsafe {
        sigaction(signal, std::ptr::null(), current.as_mut_ptr());
        current.assume_init()
    }
}

fn before(signal: c_int) -> Option<Handler> {
    let current = current(signal);
    let handler = current.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        return None;
    }
    // SAFETY: the flags declare the handler's form.
    Some(unsafe {
        if current.sa_flags & libc::SA_SIGINFO != 0 {
            Handler::WithInfo(std::mem::transmute::<usize, WithInfo>(handler))
        } else {
            Handler::Plain(std::mem::transmute::<usize, extern "C" fn(c_int)>(handler))
        }
    })
}

fn install(signal: c_int) {
    let mut action = current(signal);
    let ours: WithInfo = handle;
    if action.sa_sigaction == ours as usize {
        return;
    }
    action.sa_sigaction = ours as usize;
    action.sa_flags |= libc::SA_SIGINFO;
    // SAFETY: the handler has the form declared by the flags.
    unsafe { sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    IS_DUE.store(true, Relaxed);
    let known = SIGNALS.iter().position(|known| *known == signal);
    let before = BEFORE.get().zip(known).and_then(|(all, at)| all[at]);
    match before {
        Some(Handler::Plain(handler)) => handler(signal),
        Some(Handler::WithInfo(handler)) => handler(signal, info, context),
        None => {}
    }
}
