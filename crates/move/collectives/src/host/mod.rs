//! Collectives among ranks of one host, which read and write each other's buffers directly.
//!
//! Small operations take one step: every rank writes its part into its mailbox in shared memory and reads those of its
//! peers. Large ones announce where the buffers lie; then each rank works on its share of all ranks' buffers at once, and
//! all wait until all are done. Buffers that lie in windows ([`HostGroup::alloc`]) are read and written in place; plain
//! memory is reached by system call, or goes through the mailboxes where the system refuses that.

mod direct;
mod group;
mod mailbox;
mod signature;
#[cfg(test)]
mod tests;

pub use group::HostGroup;
