pub(super) mod admin;
pub(super) mod auditing;
pub(super) mod authenticate;
pub(super) mod connect;
pub(super) mod reservation;
