//! Processor architectures of the guest.

/// Architecture of the guest. Every other architecture than x86-64 is cross-built and foreign to
/// the build machine's apt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    #[value(name = "x86-64")]
    X86_64,
    Aarch64,
    /// Kernel with pages of 16 KiB.
    #[value(name = "aarch64-16k")]
    Aarch64Pages16k,
}

impl Arch {
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::X86_64
    }

    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 | Self::Aarch64Pages16k => "arm64",
        }
    }

    /// QEMU's program, and the Debian package that contains it.
    pub(crate) fn qemu(self) -> (&'static str, &'static str) {
        match self {
            Self::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Aarch64 | Self::Aarch64Pages16k => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// Debian's kernel packages, the preferred first.
    pub(crate) fn debian_kernels(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["linux-image-6.12-amd64", "linux-image-amd64"],
            Self::Aarch64 => &["linux-image-6.12-arm64", "linux-image-arm64"],
            Self::Aarch64Pages16k => &["linux-image-6.12-arm64-16k", "linux-image-arm64-16k"],
        }
    }

    pub(crate) fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 | Self::Aarch64Pages16k => "ttyAMA0",
        }
    }

    /// QEMU's options for machine and processor.
    ///
    /// The x86-64 processor is a Nehalem, because rxe's ICRC is 2 to 3 times slower with emulated
    /// PCLMUL. CMPXCHG16B is off: its emulation sometimes corrupts the flags. The Neoverse has the
    /// atomics of ARMv8.1, but no pointer authentication, whose emulation is slow.
    pub(crate) fn machine(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["-cpu", "Nehalem,cx16=off"],
            Self::Aarch64 | Self::Aarch64Pages16k => {
                &["-machine", "virt,gic-version=3", "-cpu", "neoverse-n1"]
            }
        }
    }
}
