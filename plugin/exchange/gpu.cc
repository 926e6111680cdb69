// SPDX-License-Identifier: Apache-2.0
#include "exchange/gpu.h"

#include <algorithm>
#include <array>
#include <utility>

#include "device/kernel_image.h"
#include "exchange/engine.h"
#include "kernels/layout.h"

namespace railyard::exchange {
namespace {

constexpr int kThreadsPerBlock = 512;
constexpr uint64_t kPoolAlignment = 4096;

transport::Area area_of(const device::Region& region, int dmabuf_fd) {
  return {region.host(), region.device(), region.bytes(), dmabuf_fd};
}

}  // namespace

Gpu::Ranges::Ranges(uint64_t bytes) { free_.push_back({0, bytes}); }

bool Gpu::Ranges::take_half(uint64_t* offset, uint64_t* bytes) {
  if (free_.empty()) return false;
  uint64_t total = 0;
  for (const Range& range : free_) total += range.bytes;
  const auto largest = std::max_element(
      free_.begin(), free_.end(), [](const Range& a, const Range& b) { return a.bytes < b.bytes; });
  *bytes = std::min(largest->bytes, std::max(total / 2, kPoolAlignment));
  *bytes -= *bytes % kPoolAlignment;
  if (*bytes == 0) return false;
  *offset = largest->offset;
  largest->offset += *bytes;
  largest->bytes -= *bytes;
  if (largest->bytes == 0) free_.erase(largest);
  return true;
}

void Gpu::Ranges::give(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  auto after = std::find_if(free_.begin(), free_.end(),
                            [&](const Range& range) { return range.offset > offset; });
  after = free_.insert(after, {offset, bytes});
  const auto next = std::next(after);
  if (next != free_.end() && after->offset + after->bytes == next->offset) {
    after->bytes += next->bytes;
    free_.erase(next);
  }
  if (after == free_.begin()) return;
  const auto before = std::prev(after);
  if (before->offset + before->bytes == after->offset) {
    before->bytes += after->bytes;
    free_.erase(after);
  }
}

Gpu::Gpu(const device::Driver& driver, CUcontext context) : driver_(driver), context_(context) {}

Result<std::unique_ptr<Gpu>> Gpu::create(const device::Driver& driver, CUcontext context,
                                         TransportChoice choice, const GpuOptions& options) {
  std::unique_ptr<Gpu> gpu(new Gpu(driver, context));
  const device::ContextScope scope(driver, context);
  Status status = driver.check(driver.cuCtxGetDevice(&gpu->device_), "cuCtxGetDevice");
  if (status.ok()) status = gpu->load_kernel(options);
  if (status.ok()) {
    status = driver.check(driver.cuStreamCreate(&gpu->setup_stream_, CU_STREAM_NON_BLOCKING),
                          "cuStreamCreate");
  }
  if (status.ok()) status = gpu->make_pools(choice, options);
  if (!status.ok()) return status;

  const UniqueFd staging_dmabuf = gpu->staging_->export_dmabuf();
  const UniqueFd landing_dmabuf = gpu->landing_->export_dmabuf();
  gpu->transport_ = std::move(choice.transport);
  status = gpu->transport_->listen(area_of(*gpu->staging_, staging_dmabuf.get()),
                                   area_of(*gpu->landing_, landing_dmabuf.get()));
  if (!status.ok()) return status;
  Result<std::unique_ptr<Carrier>> carrier = Carrier::start(*gpu->transport_, gpu->kernel_rings_);
  if (!carrier.ok()) return carrier.status();
  gpu->carrier_ = carrier.take();
  return gpu;
}

Gpu::~Gpu() {
  Engine::tidy(*this);
  const device::ContextScope scope(driver_, context_);
  carrier_.reset();
  transport_.reset();
  staging_.reset();
  landing_.reset();
  if (setup_stream_ != nullptr) driver_.cuStreamDestroy(setup_stream_);
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
}

Status Gpu::load_kernel(const GpuOptions& options) {
  const std::span<const std::byte> image = device::kernel_image();
  const CUresult loaded = driver_.cuModuleLoadData(&module_, image.data());
  if (loaded != CUDA_SUCCESS && image.empty()) {
    return Status(Code::kUnavailable,
                  "this railyard was built without GPU code: rebuild it where nvcc is installed");
  }
  Status status = driver_.check(loaded, "loading the exchange kernel");
  if (!status.ok()) return status;
  status = driver_.check(driver_.cuModuleGetFunction(&kernel_, module_, kernels::kExchangeKernel),
                         "finding the exchange kernel");
  if (!status.ok()) return status;
  CUfunction mark = nullptr;
  kernel_rings_ =
      driver_.cuModuleGetFunction(&mark, module_, kernels::kHostKernelMark) == CUDA_SUCCESS;

  int most_threads = 1, processors = 1;
  driver_.cuDeviceGetAttribute(&most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device_);
  driver_.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_);
  threads_ = static_cast<uint32_t>(std::clamp(most_threads, 1, kThreadsPerBlock));
  blocks_ = std::clamp(options.blocks, 1U, static_cast<uint32_t>(std::max(processors, 1)));
  return {};
}

Status Gpu::make_pools(const TransportChoice& choice, const GpuOptions& options) {
  Result<std::unique_ptr<device::Region>> staging =
      device::Region::create(driver_, device_, choice.staging, options.pool_bytes);
  if (!staging.ok()) return staging.status();
  Result<std::unique_ptr<device::Region>> landing =
      device::Region::create(driver_, device_, choice.landing, options.pool_bytes);
  if (!landing.ok()) return landing.status();
  staging_ = staging.take();
  landing_ = landing.take();
  staging_ranges_ = std::make_unique<Ranges>(options.pool_bytes);
  landing_ranges_ = std::make_unique<Ranges>(options.pool_bytes);
  return {};
}

bool Gpu::may_use(const void* memory) const {
  CUdeviceptr address = 0;
  unsigned type = 0, managed = 0;
  int owner = -1;
  std::array names = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, names.size()> values = {&address, &type, &managed, &owner};
  const device::ContextScope scope(driver_, context_);
  const CUresult known = driver_.cuPointerGetAttributes(names.size(), names.data(), values.data(),
                                                        reinterpret_cast<CUdeviceptr>(memory));
  if (known != CUDA_SUCCESS || address == 0) return false;
  return type != CU_MEMORYTYPE_DEVICE || managed != 0 || owner == device_;
}

Result<Holding> Gpu::hold() {
  std::lock_guard lock(mutex_);
  Holding holding;
  if (!staging_ranges_->take_half(&holding.staging_offset, &holding.staging_bytes)) {
    return Status(Code::kUnavailable,
                  "the staging pool is used up: raise RAILYARD_BUFFER_MB or destroy communicators "
                  "that are no longer used");
  }
  if (!landing_ranges_->take_half(&holding.landing_offset, &holding.landing_bytes)) {
    staging_ranges_->give(holding.staging_offset, holding.staging_bytes);
    return Status(Code::kUnavailable,
                  "the landing pool is used up: raise RAILYARD_BUFFER_MB or destroy communicators "
                  "that are no longer used");
  }
  // Tags are not reused, so that a late cell or credit of a
  // communicator that has gone means nothing to a later one.
  const uint64_t tags = most_tags(holding);
  if (next_tag_ + tags > transport::kMaxTag) {
    staging_ranges_->give(holding.staging_offset, holding.staging_bytes);
    landing_ranges_->give(holding.landing_offset, holding.landing_bytes);
    return Status(Code::kUnavailable,
                  "this process has joined more communicators than railyard can name");
  }
  holding.first_tag = next_tag_;
  holding.tags = static_cast<uint32_t>(tags);
  next_tag_ += holding.tags;
  return holding;
}

void Gpu::trim(Holding& holding, const SlotPlan& plan, int rank) {
  std::lock_guard lock(mutex_);
  const auto shrink = [](Ranges& ranges, uint64_t offset, uint64_t* held, uint64_t needed) {
    needed = std::min(*held, (needed + kPoolAlignment - 1) / kPoolAlignment * kPoolAlignment);
    ranges.give(offset + needed, *held - needed);
    *held = needed;
  };
  shrink(*staging_ranges_, holding.staging_offset, &holding.staging_bytes,
         plan.staging_bytes(rank));
  shrink(*landing_ranges_, holding.landing_offset, &holding.landing_bytes,
         plan.landing_bytes(rank));
  if (holding.first_tag + holding.tags == next_tag_) {
    next_tag_ = holding.first_tag + plan.tags(rank);
    holding.tags = plan.tags(rank);
  }
}

void Gpu::release(const Holding& holding) {
  std::lock_guard lock(mutex_);
  staging_ranges_->give(holding.staging_offset, holding.staging_bytes);
  landing_ranges_->give(holding.landing_offset, holding.landing_bytes);
}

}  // namespace railyard::exchange
