//! The interface of network plugins, `ncclNet_v6_t` to `ncclNet_v12_t` (`src/include/plugin/net/net_v*.h`).
//!
//! | version | loaded by NCCL | what it brought |
//! | --- | --- | --- |
//! | 6 | 2.13 and later | DMA-BUF, latency, grouped receives since 5 |
//! | 7 | 2.19 | device offload: handles of connect and accept, `getDeviceMr`, `irecvConsumed` |
//! | 8 | 2.20 | `regIsGlobal`, memory sizes as `size_t` |
//! | 9 | 2.24 | message sizes as `size_t`, virtual devices, `forceFlush`, greatest message |
//! | 10 | 2.26 | profiler handles, configuration per connection (traffic class) |
//! | 11 | 2.28 | a context per communicator, `finalize`, `setNetAttr`, `maxMultiRequestSize` |
//! | 12 | 2.30 | eight devices per virtual device, rail and plane |
//!
//! NCCL asks a library for the newest version it knows and takes the first that is there (`src/plugin/net.cc`).

mod calls;
mod properties;
mod tables;

pub use calls::*;
pub use properties::*;
pub use tables::*;

use std::ffi::c_int;

/// Bytes that `listen` may write as its handle (`NCCL_NET_HANDLE_MAXSIZE`).
pub const HANDLE_BYTES: usize = 128;

/// Requests that NCCL keeps under way per connection (`NCCL_NET_MAX_REQUESTS`).
pub const MOST_REQUESTS: usize = 32;

/// Receives that a plugin offers to take in one call, where it takes several: what NCCL's own InfiniBand transport offers
/// (`NCCL_NET_IB_MAX_RECVS`). NCCL stays within the device's `maxRecvs`.
pub const MOST_GROUPED: usize = 8;

/// Memory of the host (`NCCL_PTR_HOST`).
pub const PTR_HOST: c_int = 0x1;
/// Memory of a GPU (`NCCL_PTR_CUDA`).
pub const PTR_CUDA: c_int = 0x2;
/// Memory of a GPU as a DMA-BUF (`NCCL_PTR_DMABUF`).
pub const PTR_DMABUF: c_int = 0x4;

/// No offload to a device (`NCCL_NET_DEVICE_HOST`).
pub const DEVICE_HOST: c_int = 0;
/// The version that goes with [`DEVICE_HOST`] (`NCCL_NET_DEVICE_INVALID_VERSION`).
pub const DEVICE_NO_VERSION: c_int = 0;

/// What `irecv` finds in its request where NCCL does not need to hear of completion
/// (`NCCL_NET_OPTIONAL_RECV_COMPLETION`): a mark to be overwritten, not a request.
pub const OPTIONAL_RECV_COMPLETION: usize = 0x1;

/// No traffic class is asked for (`NCCL_NET_TRAFFIC_CLASS_UNDEF`).
pub const TRAFFIC_CLASS_UNDEF: c_int = -1;

/// A rail or plane that is not known (`NCCL_NET_ID_UNDEF`).
pub const ID_UNDEF: i16 = -1;

/// Greatest message that NCCL accepts in properties since 9 (`NCCL_MAX_NET_SIZE_BYTES`).
pub const MOST_BYTES: usize = 1 << 40;
