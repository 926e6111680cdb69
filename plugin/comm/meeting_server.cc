// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_server.h"

#include "base/service_thread.h"
#include "comm/meeting_loop.h"

namespace railyard::comm {

MeetingServer::MeetingServer() = default;

Result<std::unique_ptr<MeetingServer>> MeetingServer::start(const net::SocketAddress& at,
                                                            const MeetingServerOptions& options) {
  Result<net::Listener> listener = net::listen_on(at);
  if (!listener.ok()) return listener.status();
  const Result<Secret> key = make_secret();
  if (!key.ok()) return key.status();
  std::unique_ptr<MeetingServer> server(new MeetingServer);
  server->address_ = listener->address;
  server->key_ = *key;
  Result<std::unique_ptr<Loop>> loop = Loop::make(listener.take(), *key, options);
  if (!loop.ok()) return loop.status();
  server->loop_ = loop.take();
  Result<std::thread> thread =
      start_service_thread("railyard-meet", [raw = server->loop_.get()] { raw->run(); });
  if (!thread.ok()) return thread.status();
  server->thread_ = thread.take();
  return server;
}

MeetingServer::~MeetingServer() {
  if (!thread_.joinable()) return;
  loop_->stop();
  thread_.join();
}

void MeetingServer::admit(const Secret& key) { loop_->admit(key); }

Result<MeetingPoint> MeetingServer::new_point() const {
  const Result<Secret> meeting = make_secret();
  if (!meeting.ok()) return meeting.status();
  return MeetingPoint{address_, key_, *meeting};
}

}  // namespace railyard::comm
