// SPDX-License-Identifier: Apache-2.0
//
// A plugin for NCCL that writes down how it is called: a tuner of version TUNER_VERSION and an
// environment that answers NCCL_HOSTID for nobody else. Lines go to the file TEST_PLUGIN_LOG.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../plugin_abi.h"

using namespace railyard::emulator::plugin;  // NOLINT: it is one of these

namespace {

void note(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  int length = ::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const char* path = ::getenv("TEST_PLUGIN_LOG");
  int fd = ::open(path == nullptr ? "/dev/null" : path, O_WRONLY | O_APPEND | O_CREAT, 0644);
  [[maybe_unused]] ssize_t n = ::write(fd, line, static_cast<size_t>(length));
  ::close(fd);
}

int contexts = 0;

ncclResult_t init(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger,
                  NvlDomains* domains, Constants*) {
  *context = &contexts;
  note("init %llx ranks %zu nodes %zu domains %d\n", static_cast<unsigned long long>(communicator),
       ranks, nodes, domains->count);
  return ncclSuccess;
}

ncclResult_t old_init(size_t ranks, size_t nodes, Logger, void** context) {
  *context = &contexts;
  note("init ranks %zu nodes %zu\n", ranks, nodes);
  return ncclSuccess;
}

ncclResult_t ask(void* context, Function function, size_t bytes, int, float** costs, int algorithms,
                 int protocols, int, int*) {
  note("asked for %d of %zu bytes, %d\n", function, bytes,
       context == &contexts && reinterpret_cast<float*>(costs)[algorithms * protocols - 1] > 0);
  return ncclSuccess;
}

ncclResult_t old_ask(void* context, Function function, size_t bytes, int, int, int, int*, int*,
                     int*) {
  note("asked for %d of %zu bytes, %d\n", function, bytes, context == &contexts);
  return ncclSuccess;
}

ncclResult_t newest_init(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                         Logger log, NvlDomains* domains, Constants* constants) {
  note("newest\n");
  return init(context, communicator, ranks, nodes, log, domains, constants);
}

ncclResult_t first_init(size_t ranks, size_t nodes, Logger) {
  note("init of the first: ranks %zu nodes %zu\n", ranks, nodes);
  return ncclSuccess;
}

ncclResult_t first_ask(Function function, size_t bytes, int, int, int, int*, int*, int*) {
  note("asked for %d of %zu bytes\n", function, bytes);
  return ncclSuccess;
}

ncclResult_t first_destroy() {
  note("finalize\n");
  return ncclSuccess;
}

ncclResult_t finalize(void*) {
  note("finalize\n");
  return ncclSuccess;
}

ncclResult_t start(uint8_t major, uint8_t minor, uint8_t patch, const char*) {
  note("environment of %d.%d.%d\n", major, minor, patch);
  return ncclSuccess;
}
ncclResult_t newest_start(uint8_t major, uint8_t minor, uint8_t patch, const char*, Logger log) {
  log(2, 0, "here", 1, "a plugin may speak while it is loaded");
  note("newest environment of %d.%d.%d\n", major, minor, patch);
  return ncclSuccess;
}
ncclResult_t end() {
  note("end of environment\n");
  return ncclSuccess;
}
const char* get(const char* name) {
  // What only a plugin can know.
  return ::strcmp(name, "NCCL_COMM_BLOCKING") == 0 ? "0" : ::getenv(name);
}

}  // namespace

extern "C" {
extern const TunerV1 ncclTunerPlugin_v1;
extern const TunerV2 ncclTunerPlugin_v2;
extern const TunerV5 ncclTunerPlugin_v5;
extern const TunerV6 ncclTunerPlugin_v6;
extern const EnvV1 ncclEnvPlugin_v1;
extern const EnvV2 ncclEnvPlugin_v2;
const TunerV1 ncclTunerPlugin_v1 = {"test", first_init, first_ask, first_destroy};
const TunerV6 ncclTunerPlugin_v6 = {"test", newest_init, ask, finalize, nullptr};
const EnvV2 ncclEnvPlugin_v2 = {"test", newest_start, end, get};
const TunerV2 ncclTunerPlugin_v2 = {"test", old_init, old_ask, finalize};
const TunerV5 ncclTunerPlugin_v5 = {"test", init, ask, finalize};
const EnvV1 ncclEnvPlugin_v1 = {"test", start, end, get};
}
