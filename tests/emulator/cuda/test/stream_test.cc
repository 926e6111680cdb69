// SPDX-License-Identifier: Apache-2.0
//
// Contract of streams and events: what is asynchronous, what is in order, what waits for what.
#include <algorithm>
#include <thread>

#include "fixture.h"

namespace {

using StreamTest = CudaTest;

/// Appends `number` to `log` in stream order.
struct Note {
  std::vector<int>* log;
  int number;
  static void CUDA_CB write(void* data) {
    auto* note = static_cast<Note*>(data);
    note->log->push_back(note->number);
  }
};

TEST_F(StreamTest, CallsReturnBeforeTheWorkIsDone) {
  Gate gate;
  OwnStream stream;
  bool ran = false;
  gate.hold(stream);
  EXPECT_CUDA(cuLaunchHostFunc(
      stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_CUDA(cuStreamQuery(stream));
  EXPECT_TRUE(ran);
}

TEST_F(StreamTest, WorkOfOneStreamIsInOrder) {
  OwnStream stream;
  std::vector<int> log;
  std::vector<Note> notes;
  for (int i = 0; i < 100; ++i) notes.push_back(Note{&log, i});
  for (Note& note : notes) EXPECT_CUDA(cuLaunchHostFunc(stream, Note::write, &note));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  ASSERT_EQ(log.size(), notes.size());
  EXPECT_TRUE(std::is_sorted(log.begin(), log.end()));
}

TEST_F(StreamTest, CopiesFillsAndHostFunctionsKeepOrder) {
  OwnStream stream;
  Gate gate;
  Buffer buffer(1024);
  Pinned<uint8_t> first(1024);
  Pinned<uint8_t> second(1024);
  gate.hold(stream);
  EXPECT_CUDA(cuMemsetD8Async(buffer.address(), 1, 1024, stream));
  EXPECT_CUDA(cuMemcpyDtoHAsync(first.get(), buffer.address(), 1024, stream));
  EXPECT_CUDA(cuLaunchHostFunc(
      stream, [](void* bytes) { static_cast<uint8_t*>(bytes)[7] = 9; }, first.get()));
  EXPECT_CUDA(cuMemcpyHtoDAsync(buffer.address(), first.get(), 1024, stream));
  EXPECT_CUDA(cuMemcpyDtoHAsync(second.get(), buffer.address(), 1024, stream));
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(second.get()[6], 1);
  EXPECT_EQ(second.get()[7], 9);
}

TEST_F(StreamTest, StreamsDoNotWaitForEachOther) {
  Gate gate;
  OwnStream held;
  OwnStream free;
  gate.hold(held);
  Buffer buffer(64);
  EXPECT_CUDA(cuMemsetD8Async(buffer.address(), 5, 64, free));
  EXPECT_CUDA(cuStreamSynchronize(free));
  EXPECT_EQ(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  gate.open();
}

TEST_F(StreamTest, AnEventHoldsAnotherStreamUp) {
  Gate gate;
  OwnStream producer;
  OwnStream consumer;
  OwnEvent event;
  gate.hold(producer);
  EXPECT_CUDA(cuEventRecord(event, producer));
  EXPECT_CUDA(cuStreamWaitEvent(consumer, event, 0));
  EXPECT_EQ(cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(consumer));
  EXPECT_CUDA(cuEventQuery(event));
}

TEST_F(StreamTest, AnEventNeverRecordedHoldsNothingUp) {
  OwnStream stream;
  OwnEvent event;
  EXPECT_CUDA(cuEventQuery(event));
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_CUDA(cuStreamWaitEvent(stream, event, 0));
  EXPECT_CUDA(cuStreamSynchronize(stream));
}

TEST_F(StreamTest, AWaitIsForTheRecordAtTheTimeOfTheCall) {
  Gate gate;
  OwnStream producer;
  OwnStream consumer;
  OwnEvent event;
  EXPECT_CUDA(cuEventRecord(event, producer));
  EXPECT_CUDA(cuStreamWaitEvent(consumer, event, 0));
  gate.hold(producer);
  EXPECT_CUDA(cuEventRecord(event, producer));
  EXPECT_CUDA(cuStreamSynchronize(consumer));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuEventSynchronize(event));
}

TEST_F(StreamTest, AnEventMayGoWhileAStreamWaitsForIt) {
  Gate gate;
  OwnStream producer;
  OwnStream consumer;
  gate.hold(producer);
  {
    OwnEvent event;
    EXPECT_CUDA(cuEventRecord(event, producer));
    EXPECT_CUDA(cuStreamWaitEvent(consumer, event, 0));
  }
  EXPECT_EQ(cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuStreamSynchronize(consumer));
}

TEST_F(StreamTest, ElapsedTime) {
  OwnStream stream;
  OwnEvent start;
  OwnEvent end;
  OwnEvent untimed(CU_EVENT_DISABLE_TIMING);
  float time = -1;
  EXPECT_EQ(cuEventElapsedTime(&time, start, end), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuEventRecord(start, stream));
  {
    Gate gate;
    gate.hold(stream);
    EXPECT_CUDA(cuEventRecord(end, stream));
    EXPECT_EQ(cuEventElapsedTime(&time, start, end), CUDA_ERROR_NOT_READY);
  }
  EXPECT_CUDA(cuEventSynchronize(end));
  EXPECT_CUDA(cuEventElapsedTime(&time, start, end));
  EXPECT_GE(time, 0);
  EXPECT_CUDA(cuEventRecord(untimed, stream));
  EXPECT_CUDA(cuEventSynchronize(untimed));
  EXPECT_EQ(cuEventElapsedTime(&time, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingStreams) {
  Gate gate;
  OwnStream blocking(CU_STREAM_DEFAULT);
  gate.hold(blocking);
  OwnEvent event;
  EXPECT_CUDA(cuEventRecord(event, CU_STREAM_LEGACY));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuEventSynchronize(event));
}

TEST_F(StreamTest, BlockingStreamsWaitForTheLegacyStream) {
  Gate gate;
  OwnStream blocking(CU_STREAM_DEFAULT);
  gate.hold(nullptr);
  OwnEvent event;
  EXPECT_CUDA(cuEventRecord(event, blocking));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  OwnEvent own;
  EXPECT_CUDA(cuEventRecord(own, CU_STREAM_PER_THREAD));
  EXPECT_EQ(cuEventQuery(own), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_CUDA(cuEventSynchronize(own));
}

TEST_F(StreamTest, NonBlockingStreamsIgnoreTheLegacyStream) {
  Gate gate;
  OwnStream other(CU_STREAM_NON_BLOCKING);
  gate.hold(nullptr);
  OwnEvent event;
  EXPECT_CUDA(cuEventRecord(event, other));
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamTest, EachThreadHasADefaultStream) {
  Gate gate;
  gate.hold(CU_STREAM_PER_THREAD);
  std::thread([this] {
    EXPECT_CUDA(cuCtxSetCurrent(context_));
    EXPECT_CUDA(cuStreamQuery(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
}

TEST_F(StreamTest, WorkOfADestroyedStreamIsDone) {
  Gate gate;
  Pinned<uint8_t> target(1);
  target.get()[0] = 0;
  Buffer buffer(1);
  buffer.write({42});
  CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  gate.hold(stream);
  EXPECT_CUDA(cuMemcpyDtoHAsync(target.get(), buffer.address(), 1, stream));
  OwnEvent event;
  EXPECT_CUDA(cuEventRecord(event, stream));
  EXPECT_CUDA(cuStreamDestroy(stream));
  gate.open();
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_EQ(target.get()[0], 42);
}

TEST_F(StreamTest, ContextSynchronizeWaitsForAllStreams) {
  OwnStream streams[3];
  std::atomic<int> done{0};
  for (const OwnStream& stream : streams) {
    EXPECT_CUDA(cuLaunchHostFunc(
        stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &done));
  }
  EXPECT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(done, 3);
}

TEST_F(StreamTest, CallbacksKnowTheirStream) {
  OwnStream stream;
  CUstream seen = nullptr;
  EXPECT_CUDA(cuStreamAddCallback(
      stream,
      [](CUstream which, CUresult status, void* data) {
        if (status == CUDA_SUCCESS) *static_cast<CUstream*>(data) = which;
      },
      &seen, 0));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(seen, CUstream{stream});
}

TEST_F(StreamTest, ValuesAreWrittenInOrderAndWaitedFor) {
  OwnStream stream;
  Pinned<uint64_t> words(4);
  std::fill_n(words.get(), 4, 0);
  CUdeviceptr at = words.device();
  EXPECT_CUDA(cuStreamWriteValue64(stream, at, 0x1234567890, 0));
  EXPECT_CUDA(cuStreamWaitValue64(stream, at, 0x1234567890, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(cuStreamWaitValue64(stream, at, 0x10, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_CUDA(cuStreamWaitValue32(stream, at, 0x34567890, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_CUDA(cuStreamWriteValue32(stream, at + 8, 77, 0));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(words.get()[0], 0x1234567890U);
  EXPECT_EQ(words.get()[1], 77U);
}

TEST_F(StreamTest, ValuesCompareCyclically) {
  OwnStream stream;
  Pinned<uint32_t> word(1);
  word.get()[0] = 2;
  EXPECT_CUDA(cuStreamWaitValue32(stream, word.device(), 0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CUDA(cuStreamSynchronize(stream));
}

TEST_F(StreamTest, Properties) {
  int least = 1;
  int greatest = 1;
  EXPECT_CUDA(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
  int priority = 0;
  EXPECT_CUDA(cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  unsigned flags = 0;
  EXPECT_CUDA(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  CUcontext context = nullptr;
  EXPECT_CUDA(cuStreamGetCtx(stream, &context));
  EXPECT_EQ(context, context_);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_CUDA(cuStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_CUDA(cuStreamDestroy(stream));
}

TEST_F(StreamTest, CaptureModeIsExchanged) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(StreamTest, Misuse) {
  EXPECT_EQ(cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, 0x80), CUDA_ERROR_INVALID_VALUE);
  CUevent event = nullptr;
  EXPECT_EQ(cuEventCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchHostFunc(nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamIsCapturing(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuThreadExchangeStreamCaptureMode(nullptr), CUDA_ERROR_INVALID_VALUE);
  float time = 0;
  EXPECT_NE(cuEventElapsedTime(&time, nullptr, nullptr), CUDA_SUCCESS);
}

// NVIDIA's driver may let it pass.
TEST_F(StreamTest, EmulatedHostFunctionsMustNotCallTheDriver) {
  OwnStream stream;
  CUresult result = CUDA_SUCCESS;
  EXPECT_CUDA(cuLaunchHostFunc(
      stream,
      [](void* out) {
        CUcontext context = nullptr;
        *static_cast<CUresult*>(out) = cuCtxGetCurrent(&context);
      },
      &result));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
}

// NVIDIA's driver does not promise to survive what these do.
TEST_F(StreamTest, EmulatedStaleHandles) {
  CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreate(&stream, 0));
  EXPECT_CUDA(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, 0));
  EXPECT_CUDA(cuEventDestroy(event));
  EXPECT_EQ(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, event, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, ManyThreadsUseOneContext) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      EXPECT_CUDA(cuCtxSetCurrent(context_));
      OwnStream stream(t % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
      OwnEvent event(CU_EVENT_DISABLE_TIMING);
      Buffer buffer(256);
      Pinned<uint8_t> result(256);
      for (int round = 0; round < 20; ++round) {
        auto value = static_cast<unsigned char>(16 * t + round % 16);
        EXPECT_CUDA(cuMemsetD8Async(buffer.address(), value, 256, stream));
        EXPECT_CUDA(cuMemcpyDtoHAsync(result.get(), buffer.address(), 256, stream));
        EXPECT_CUDA(cuEventRecord(event, round % 3 == 0 ? CUstream{stream} : nullptr));
        EXPECT_CUDA(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        EXPECT_CUDA(cuStreamSynchronize(round % 3 == 0 ? CU_STREAM_PER_THREAD : CUstream{stream}));
        ASSERT_EQ(result.get()[255], value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
