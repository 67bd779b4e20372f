//! What messages carry where checksums are asked for: CRC-32C, which processors compute faster than networks carry bytes.

/// The checksum of some bytes.
pub(super) fn of(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}
