//! Conflicts of I/O commands with a reservation (Base 2.1, 8.1.22.3; NVM command set, 3.3).

use super::{HostId, ReservationType, Reservations};
use crate::io::OperationKind;

/// Group of I/O commands in the table of conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read, Compare and Verify.
    Read,
    /// Write, Write Zeroes, Write Uncorrectable, Dataset Management, Flush and Copy.
    Write,
}

impl OperationKind {
    /// Group of the command in the table of conflicts.
    #[must_use]
    pub const fn access(self) -> Access {
        match self {
            Self::Read | Self::Compare | Self::Verify => Access::Read,
            Self::Write
            | Self::Flush(_)
            | Self::WriteZeroes
            | Self::WriteUncorrectable
            | Self::DatasetManagement { .. }
            | Self::Copy => Access::Write,
        }
    }
}

/// Relation of a host to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Holder of the reservation.
    Holder,
    /// Registered host that does not hold the reservation.
    Registrant,
    /// Host without a registration.
    Neither,
}

impl ReservationType {
    /// True if the reservation permits commands of this group to hosts of this role.
    #[must_use]
    pub const fn permits(self, role: Role, access: Access) -> bool {
        let writes = matches!(access, Access::Write);
        match (self, role) {
            (_, Role::Holder) => true,
            (Self::WriteExclusive, _) => !writes,
            (Self::ExclusiveAccess, _) => false,
            (
                Self::WriteExclusiveRegistrantsOnly
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
                | Self::ExclusiveAccessAllRegistrants,
                Role::Registrant,
            ) => true,
            (
                Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants,
                Role::Neither,
            ) => !writes,
            (
                Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants,
                Role::Neither,
            ) => false,
        }
    }
}

impl Reservations {
    /// Role of a host.
    #[must_use]
    pub fn role(&self, host: &HostId) -> Role {
        if self.is_holder(host) {
            Role::Holder
        } else if self.find(host).is_some() {
            Role::Registrant
        } else {
            Role::Neither
        }
    }

    /// True if the reservation forbids the host commands of this group.
    #[must_use]
    pub fn forbids(&self, host: &HostId, access: Access) -> bool {
        self.rtype()
            .is_some_and(|rtype| !rtype.permits(self.role(host), access))
    }
}
