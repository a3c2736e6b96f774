// A client that has the token and sends what no client library would: operations and chunks at random, with handles
// from a small pool, so that many of them exist, and with sizes from the edges. It must cost other sessions nothing.
//
// Threading: Run on a thread of the world, in a process of its own.
#ifndef GANGWAY_SIMULATION_HOSTILE_CLIENT_H_
#define GANGWAY_SIMULATION_HOSTILE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gangway/base/answer.h"
#include "gangway/base/executor.h"
#include "gangway/simulation/random.h"
#include "gangway/transport/transport.h"
#include "gangway/wire/wire.pb.h"

namespace gangway::simulation {

class HostileClient {
 public:
  // `devices`: of the cluster.
  HostileClient(uint64_t seed, std::unique_ptr<transport::Transport> network, uint32_t devices);

  // Sends `count` batches, and as many frames to workers, until it is cut off. Ends its session.
  void Run(int count);

  // Batches that the cluster took.
  int sent() const { return sent_; }

 private:
  std::shared_ptr<transport::Link> Connect(const std::string& address, wire::Hello hello,
                                           const std::shared_ptr<Answer<wire::HelloReply>>& answer);
  void AddOp(wire::SessionBatch& batch);
  void FillCompile(wire::CompileOp& op);
  void FillUpload(wire::UploadOp& op);
  void FillCall(wire::CallOp& op);
  void FillPut(wire::Put& op);
  void FillRegroup(wire::RegroupOp& op);
  void FillProgram(wire::RegisterProgramOp& op);
  void FillLaunch(wire::LaunchOp& op);
  void FillShards(wire::DropShardsOp& op);
  uint32_t Shard();
  wire::Frame DataFrame();
  void FillMeaning(wire::Bulk& bulk);
  uint64_t Handle() { return random_.Percent(95) ? random_.Below(24) : random_.Next(); }
  uint64_t Size();
  uint32_t Device() { return static_cast<uint32_t>(random_.Below(devices_ + 2)); }
  void AddHandles(google::protobuf::RepeatedField<uint64_t>& handles);

  Random random_;
  const std::unique_ptr<transport::Transport> network_;
  const uint32_t devices_;
  EventLoop loop_{"hostile"};
  uint64_t session_ = 0;
  int sent_ = 0;
};

}  // namespace gangway::simulation

#endif  // GANGWAY_SIMULATION_HOSTILE_CLIENT_H_
