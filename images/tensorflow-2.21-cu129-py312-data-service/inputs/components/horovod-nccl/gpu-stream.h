// Horovod calls this function, which TensorFlow no longer has
#include <cuda_runtime.h>
#include "tensorflow/compiler/xla/stream_executor/stream.h"

namespace stream_executor::gpu {
inline cudaStream_t AsGpuStreamValue(Stream* stream) {
  return static_cast<cudaStream_t>(stream->platform_specific_handle().stream);
}
}  // namespace stream_executor::gpu
