// SPDX-License-Identifier: Apache-2.0
//
// Bandwidth and latency of the verbs transport between two carriers, each in a thread of its own.
// For latency they poll without pause, as carriers do where there are processors enough; for
// bandwidth they sleep till there is something to do, as carriers do where there are not.
//
//   verbs_perf DEVICE DEVICE      RDMA devices of this machine, for example rxe1 rxe2
//
// Bandwidth: messages of 1 MiB in cells of 256 KiB, one way, credits as the exchange gives them.
// Latency: messages of 8 bytes to and fro; half a round trip. Prints medians, one line each:
//
//   bandwidth_mib_s 51.2
//   latency_us 30.1
//
// Cells carry their header as in the exchange; only payload counts. Every cell's header is checked,
// every byte of the first round's.
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/layout.h"
#include "transport/verbs/verbs_transport.h"

namespace railyard {
namespace {

using transport::LinkId;
using transport::Transport;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kCellBytes = 256 << 10;
constexpr uint64_t kMessageBytes = 1 << 20;
constexpr uint64_t kCellsPerMessage = kMessageBytes / kCellBytes;
constexpr uint64_t kHeaderBytes = sizeof(kernels::CellHeader);
constexpr uint32_t kSlots = 16;
constexpr uint64_t kStride = kCellBytes + 4096;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "verbs_perf: %s\n", why.c_str());
  std::_Exit(1);
}

std::byte pattern(uint64_t sequence, uint64_t position) {
  return static_cast<std::byte>((position * 31 + sequence * 131) >> 3);
}

/// One carrier: sends cells as slots allow, takes cells, gives credits for half of the slots at a
/// time. Bound to one thread once it runs.
class Carrier final : public transport::Receiver {
 public:
  explicit Carrier(const std::string& device) {
    verbs::Options options = verbs::options_from([](const char* name) { return getenv(name); });
    options.hca = "=" + device;
    options.bootstrap = *net::SocketAddress::parse("127.0.0.1", 0);
    auto made = transport::make_verbs(options);
    if (!made.ok()) give_up(made.status().message());
    transport_ = made.take();
    transport::Area from, to;
    from.host = staging_.data();
    to.host = landing_.data();
    from.bytes = to.bytes = staging_.size();
    if (Status status = transport_->listen(from, to); !status.ok()) give_up(status.message());
  }

  Transport& transport() { return *transport_; }
  void open(Carrier& peer) {
    auto link = transport_->open(peer.transport().address(), "the other carrier");
    if (!link.ok()) give_up(link.status().message());
    link_ = *link;
  }

  uint64_t received() const { return received_; }
  bool may_send() const { return sent_ - credits_ < kSlots; }
  void send(uint64_t payload) {
    const uint32_t slot = static_cast<uint32_t>(sent_ % kSlots);
    std::byte* cell = &staging_[slot * kStride];
    const kernels::CellHeader header{sent_, payload};
    std::memcpy(cell, &header, sizeof(header));
    if (sent_ < kSlots)
      for (uint64_t i = 0; i < payload; ++i) cell[kHeaderBytes + i] = pattern(sent_, i);
    transport_->post_cell(link_, {slot, slot * kStride, slot * kStride,
                                  static_cast<uint32_t>(kHeaderBytes + payload)});
    ++sent_;
  }
  bool poll() { return transport_->progress(*this); }
  /// As poll(), but sleeps until there is something to do.
  void wait() {
    if (poll()) return;
    pollfd entry{transport_->event_fd(), POLLIN, 0};
    ::poll(&entry, 1, 100);
  }

  std::span<std::byte> landing(LinkId, uint32_t tag) override {
    return {&landing_[tag * kStride], kStride};
  }
  void on_cell(LinkId, uint32_t tag) override {
    const std::byte* cell = &landing_[tag * kStride];
    kernels::CellHeader header;
    std::memcpy(&header, cell, sizeof(header));
    if (header.sequence % kSlots != tag) give_up("a cell is in the wrong slot");
    if (header.sequence < kSlots)
      for (uint64_t i = 0; i < header.message_bytes; ++i)
        if (cell[kHeaderBytes + i] != pattern(header.sequence, i))
          give_up("a cell has wrong bytes");
    ++received_;
    freed_.push_back(tag);
    if (freed_.size() < kSlots / 2) return;
    for (const uint32_t slot : freed_) transport_->post_credit(link_, slot);
    freed_.clear();
  }
  void on_credit(LinkId, uint32_t) override { ++credits_; }
  void on_link_down(LinkId, const Status& why) override { give_up(why.message()); }

 private:
  std::vector<std::byte> staging_ = std::vector<std::byte>(kSlots * kStride);
  std::vector<std::byte> landing_ = std::vector<std::byte>(kSlots * kStride);
  LinkId link_{};
  uint64_t sent_ = 0, received_ = 0, credits_ = 0;
  std::vector<uint32_t> freed_;
  std::unique_ptr<Transport> transport_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void stay_on_processor(int number) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(number), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

/// Runs each carrier in a thread and on a processor of its own till both functions return.
void together(const std::function<void()>& a, const std::function<void()>& b) {
  std::thread other([&] {
    stay_on_processor(1);
    b();
  });
  stay_on_processor(0);
  a();
  other.join();
}

/// MiB of payload per second, one way.
double bandwidth(Carrier& from, Carrier& to, int messages) {
  const uint64_t cells = static_cast<uint64_t>(messages) * kCellsPerMessage;
  const uint64_t end = to.received() + cells;
  const Clock::time_point begin = Clock::now();
  std::atomic<bool> done{false};
  double took = 0;
  together(
      [&] {
        for (uint64_t sent = 0; !done.load(std::memory_order_relaxed);) {
          while (sent < cells && from.may_send()) {
            from.send(kCellBytes);
            ++sent;
          }
          from.wait();
        }
      },
      [&] {
        while (to.received() < end) to.wait();
        took = seconds_since(begin);
        done = true;
      });
  return messages * (static_cast<double>(kMessageBytes) / (1 << 20)) / took;
}

/// Microseconds of half a round trip, one value for each.
std::vector<double> latencies(Carrier& ping, Carrier& pong, int rounds) {
  std::vector<double> results;
  const uint64_t first = pong.received();
  together(
      [&] {
        for (int i = 0; i < rounds; ++i) {
          const uint64_t answers = ping.received();
          const Clock::time_point begin = Clock::now();
          while (!ping.may_send()) ping.poll();
          ping.send(8);
          while (ping.received() == answers) ping.poll();
          results.push_back(seconds_since(begin) * 1e6 / 2);
        }
      },
      [&] {
        for (int i = 0; i < rounds; ++i) {
          while (pong.received() == first + static_cast<uint64_t>(i)) pong.poll();
          while (!pong.may_send()) pong.poll();
          pong.send(8);
        }
      });
  return results;
}

int run(const std::string& device_a, const std::string& device_b) {
  Carrier a(device_a), b(device_b);
  a.open(b);
  b.open(a);
  bandwidth(a, b, 8);  // connects, warms up, checks bytes
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) rates.push_back(bandwidth(a, b, 64));
  std::printf("bandwidth_mib_s %.2f\n", median(rates));
  latencies(a, b, 100);
  std::printf("latency_us %.2f\n", median(latencies(a, b, 5000)));
  return 0;
}

}  // namespace
}  // namespace railyard

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: verbs_perf DEVICE DEVICE\n");
    return 2;
  }
  return railyard::run(argv[1], argv[2]);
}
