// SPDX-License-Identifier: Apache-2.0
// Work of known length on a CUDA stream. A build without CUDA has it too, and throws.
#pragma once
#include <cstdint>

namespace smla {

/// A kernel that lasts so long by the device's own nanosecond clock, which ticks coarsely.
void enqueue_spin(void* stream, double us);
/// A kernel that lasts so long by the multiprocessor's clock at its highest rate: exact to a few nanoseconds where that is the rate.
void enqueue_delay(void* stream, double us);
void enqueue_copy(void* stream, void* to, const void* from, int64_t bytes);
/// Reads all of it once, in order. Lines that are read to stay outlast all others in L2.
void enqueue_read(void* stream, const void* from, int64_t bytes, bool to_stay = false);
/// A launch that no device accepts: 4096 threads a block.
void enqueue_rejected(void* stream);
/// Fills memory: on the stream; on a stream of its own that nobody waits for; or there, but forked from the stream and joined to it again.
enum class Where { stream, own_stream, forked };
void enqueue_fill(void* stream, void* to, int64_t bytes, uint8_t value, Where where);

}  // namespace smla
