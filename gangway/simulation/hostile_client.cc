// Implementation of hostile_client.h.
#include "gangway/simulation/hostile_client.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/simulation/processes.h"
#include "gangway/wire/version.h"

namespace gangway::simulation {
namespace {

using std::chrono::milliseconds;

// A program that any worker can load, on `devices` devices.
std::string Program(uint64_t devices, uint64_t elements, bool donates) {
  return absl::StrCat("sim 1\nname hostile\npartitions ", devices, "\ninput 11 ", elements,
                      "\noutput 11 ", elements, donates ? " donates 0" : "", "\n");
}

}  // namespace

HostileClient::HostileClient(uint64_t seed, std::unique_ptr<transport::Transport> network,
                             uint32_t devices)
    : random_(seed), network_(std::move(network)), devices_(devices) {}

std::shared_ptr<transport::Link> HostileClient::Connect(
    const std::string& address, wire::Hello hello,
    const std::shared_ptr<Answer<wire::HelloReply>>& answer) {
  transport::LinkEvents events{.executor = &loop_,
                               .on_frame =
                                   [answer](const wire::Frame& frame) {
                                     if (frame.has_hello_reply()) answer->Set(frame.hello_reply());
                                   },
                               .on_closed = [](const absl::Status&) {}};
  auto link = network_->Connect(address, std::move(events), milliseconds(5000));
  if (!link.ok()) return nullptr;
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_build_version(wire::kBuildVersion);
  hello.set_name("hostile");
  wire::Frame frame;
  frame.set_sequence(1);
  *frame.mutable_hello() = std::move(hello);
  if (!(*link)->Send(std::move(frame)).ok()) return nullptr;
  return *link;
}

void HostileClient::Run(int count) {
  wire::Hello hello;
  hello.set_role(wire::ROLE_CLIENT);
  hello.set_token(Processes::kToken);
  hello.set_wants_ends(random_.Percent(50));
  auto welcome = std::make_shared<Answer<wire::HelloReply>>();
  auto control = Connect(Processes::kControlAddress, hello, welcome);
  const std::optional<wire::HelloReply> reply =
      control == nullptr ? std::nullopt : welcome->WaitFor(milliseconds(20000));
  std::vector<std::shared_ptr<transport::Link>> data;
  if (reply) {
    session_ = reply->session();
    hello.set_role(wire::ROLE_DATA);
    hello.set_token(reply->data_token());
    hello.set_session(session_);
    for (const wire::Worker& worker : reply->topology().workers()) {
      auto link =
          Connect(worker.data_address(), hello, std::make_shared<Answer<wire::HelloReply>>());
      if (link != nullptr) data.push_back(std::move(link));
    }
  }
  for (int i = 0; reply && i < count; ++i) {
    wire::Frame frame;
    for (uint64_t op = random_.Between(1, 8); op > 0; --op) AddOp(*frame.mutable_session_batch());
    frame.set_sequence(static_cast<uint64_t>(i) + 2);
    if (!control->Send(std::move(frame)).ok()) break;
    ++sent_;
    if (!data.empty()) (void)random_.Pick(data)->Send(DataFrame());
    if (random_.Percent(40)) Answer<bool>().WaitFor(milliseconds(random_.Below(4)));
  }
  for (auto& link : data) link->Close(absl::CancelledError("done"));
  if (control != nullptr) control->Close(absl::CancelledError("done"));
  loop_.Stop();
}

uint64_t HostileClient::Size() {
  static constexpr uint64_t kSizes[] = {0,
                                        1,
                                        4,
                                        8,
                                        uint64_t{1} << 31,
                                        uint64_t{1} << 61,
                                        uint64_t{1} << 62,
                                        uint64_t{1} << 63,
                                        UINT64_MAX - 7,
                                        UINT64_MAX};
  return kSizes[random_.Below(std::size(kSizes))];
}

void HostileClient::AddHandles(google::protobuf::RepeatedField<uint64_t>& handles) {
  for (uint64_t i = random_.Below(5); i > 0; --i) handles.Add(Handle());
}

void HostileClient::FillCompile(wire::CompileOp& op) {
  op.set_executable(Handle());
  const uint64_t count = random_.Below(4);
  op.set_program(random_.Percent(80) ? Program(count, random_.Between(1, 2), random_.Percent(50))
                                     : "sim 1\noutput 11 9223372036854775807\n");
  op.set_format(random_.Percent(90) ? "sim" : "mlir");
  const uint32_t first = Device();
  for (uint32_t i = 0; i < count; ++i) op.add_devices(random_.Percent(80) ? first + i : Device());
}

void HostileClient::FillUpload(wire::UploadOp& op) {
  op.set_array(Handle());
  op.set_upload(random_.Below(12));
  wire::ArraySpec& spec = *op.mutable_spec();
  spec.set_element_type(random_.Percent(90) ? 11 : static_cast<int32_t>(random_.Below(200)));
  const uint64_t bytes = Size();
  spec.set_shard_bytes(bytes);
  spec.add_shard_dims(static_cast<int64_t>(random_.Percent(70) ? bytes / 4 : Size()));
  for (uint64_t i = random_.Below(3); i > 0; --i) spec.add_devices(Device());
  for (uint64_t i = random_.Below(2); i > 0; --i) {
    wire::Destination& to = *op.add_destinations();
    to.set_island(static_cast<uint32_t>(random_.Below(3)));
    to.set_index(static_cast<uint32_t>(random_.Below(4)));
    to.set_incarnation(random_.Next());
    to.set_next(random_.Percent(50));
  }
}

void HostileClient::FillCall(wire::CallOp& op) {
  op.set_executable(Handle());
  AddHandles(*op.mutable_arguments());
  AddHandles(*op.mutable_results());
  for (uint64_t i = random_.Below(3); i > 0; --i)
    op.add_keep(static_cast<uint32_t>(random_.Below(4)));
  for (uint64_t i = random_.Below(3); i > 0; --i) {
    const auto argument = static_cast<uint32_t>(random_.Below(4));
    if (static_cast<int>(argument) < op.arguments_size() && random_.Percent(70))
      op.set_arguments(static_cast<int>(argument), 0);
    wire::GatheredArgument& list = *op.add_gathered();
    list.set_argument(argument);
    AddHandles(*list.mutable_arrays());
    for (uint64_t s = random_.Percent(70) ? list.arrays_size() : random_.Below(4); s > 0; --s)
      list.add_shards(Shard());
  }
}

uint32_t HostileClient::Shard() {
  return static_cast<uint32_t>(random_.Percent(80) ? random_.Below(3) : Size());
}

void HostileClient::FillShards(wire::DropShardsOp& op) {
  for (uint64_t i = random_.Below(4); i > 0; --i) {
    wire::DropShardsOp::Shards& shards = *op.add_arrays();
    shards.set_array(Handle());
    for (uint64_t s = random_.Below(4); s > 0; --s) shards.add_shards(Shard());
  }
}

// Shards of wrong number and size, too many arrays, handles in use.
void HostileClient::FillPut(wire::Put& op) {
  for (uint64_t i = random_.Below(3); i > 0; --i) op.add_devices(Device());
  const uint64_t count = random_.Percent(95) ? random_.Below(5) : 600;
  for (uint64_t i = 0; i < count; ++i) {
    wire::PutArray& array = *op.add_arrays();
    array.set_array(Handle());
    array.set_storage(random_.Below(12));  // means nothing here
    array.mutable_tensor()->set_element_type(random_.Percent(90) ? 11 : -1);
    array.mutable_tensor()->add_shard_dims(1);
    array.mutable_tensor()->set_shard_bytes(random_.Percent(90) ? 4 : Size());
    if (random_.Percent(5)) array.mutable_tensor()->set_memory_kind("other");
    const uint64_t shards = random_.Percent(90) ? op.devices_size() : random_.Below(4);
    for (uint64_t s = 0; s < shards; ++s)
      array.add_shards(std::string(random_.Percent(90) ? 4 : random_.Below(40'000), 'x'));
  }
}

void HostileClient::FillRegroup(wire::RegroupOp& op) {
  for (uint64_t i = random_.Below(3); i > 0; --i) {
    auto& result = *op.add_results();
    result.set_array(Handle());
    for (uint64_t s = random_.Below(4); s > 0; --s) {
      auto& shard = *result.add_shards();
      shard.set_array(Handle());
      shard.set_shard(Shard());
    }
  }
}

// Graphs that now and then make sense.
void HostileClient::FillProgram(wire::RegisterProgramOp& op) {
  auto value = [this] {
    return static_cast<uint32_t>(random_.Percent(95) ? random_.Below(4) : Size());
  };
  op.set_program(random_.Below(6));
  AddHandles(*op.mutable_like());
  op.set_sequential(random_.Percent(20));
  wire::Program& program = *op.mutable_definition();
  program.set_arguments(random_.Percent(95) ? static_cast<uint32_t>(random_.Below(4)) : value());
  for (uint64_t i = random_.Below(3); i > 0; --i) program.add_executables(Handle());
  for (uint64_t i = random_.Below(3); i > 0; --i) {
    wire::DeviceNumbers& list = *program.add_device_lists();
    for (uint64_t d = random_.Below(3); d > 0; --d) list.add_devices(Device());
  }
  const uint64_t count = random_.Percent(97) ? random_.Below(6) : 20'000;
  for (uint64_t i = 0; i < count; ++i) {
    wire::ProgramNode& node = *program.add_nodes();
    const uint64_t kind = random_.Below(4);
    if (kind == 0) {
      node.mutable_call()->set_executable(value());
      for (uint64_t a = random_.Below(3); a > 0; --a) node.mutable_call()->add_inputs(value());
      if (random_.Percent(20)) node.mutable_call()->add_keep(value());
      node.mutable_call()->set_outputs(random_.Percent(90) ? 1 : value());
    } else if (kind == 1) {
      node.mutable_transfer()->set_input(value());
      node.mutable_transfer()->set_devices(value());
    } else if (kind == 2) {
      for (uint64_t s = random_.Below(3); s > 0; --s) {
        node.mutable_view()->add_inputs(value());
        node.mutable_view()->add_shards(Shard());
      }
    }
    if (random_.Percent(10)) node.set_source(value());
  }
  for (uint64_t i = random_.Below(3); i > 0; --i) program.add_results(value());
}

void HostileClient::FillLaunch(wire::LaunchOp& op) {
  op.set_program(random_.Below(6));
  AddHandles(*op.mutable_arguments());
  AddHandles(*op.mutable_results());
  op.set_nodes(static_cast<uint32_t>(random_.Percent(80) ? random_.Below(4) : random_.Next()));
  for (uint64_t i = random_.Percent(80) ? 0 : random_.Below(3); i > 0; --i) {
    wire::GatheredArgument& list = *op.add_gathered();
    list.set_argument(Shard());
    for (uint64_t s = random_.Below(3); s > 0; --s) {
      list.add_arrays(Handle());
      list.add_shards(Shard());
    }
  }
}

void HostileClient::AddOp(wire::SessionBatch& batch) {
  wire::Op& op = *batch.add_ops();
  switch (random_.Below(23)) {
    case 0:
      return FillCompile(*op.mutable_compile());
    case 1:
    case 2:
      return FillUpload(*op.mutable_upload());
    case 3:
      return FillCall(*op.mutable_call());
    case 4: {
      AddHandles(*op.mutable_copy()->mutable_sources());
      AddHandles(*op.mutable_copy()->mutable_results());
      for (uint64_t i = random_.Below(3); i > 0; --i) op.mutable_copy()->add_devices(Device());
      return;
    }
    case 5:
      return FillRegroup(*op.mutable_regroup());
    case 6:
      op.mutable_fetch()->set_fetch(random_.Below(12));
      AddHandles(*op.mutable_fetch()->mutable_arrays());
      for (uint64_t i = random_.Below(3); i > 0; --i)
        op.mutable_fetch()->add_shards(static_cast<uint32_t>(random_.Below(3)));
      return;
    case 7:
      op.mutable_await()->set_await(random_.Below(12));
      return AddHandles(*op.mutable_await()->mutable_arrays());
    case 8:
      return AddHandles(*op.mutable_drop()->mutable_handles());
    case 9:
      return AddHandles(*op.mutable_delete_()->mutable_handles());
    case 10:
      return AddHandles(*op.mutable_drop_executables()->mutable_handles());
    case 11:
      AddHandles(*op.mutable_poison()->mutable_arrays());
      op.mutable_poison()->mutable_failure()->set_code(static_cast<int32_t>(random_.Below(40)));
      return;
    case 12:
      return FillShards(*op.mutable_drop_shards());
    case 13:
      return FillShards(*op.mutable_delete_shards());
    case 14:
    case 15:
      return FillPut(*op.mutable_put());
    case 16:  // also values that there are not
      op.mutable_tell_ends()->set_when(static_cast<wire::EndsTold>(random_.Below(4)));
      op.mutable_tell_ends()->set_looked_for(random_.Percent(50) ? random_.Below(8)
                                                                 : random_.Next());
      return;
    case 17:
    case 18:
      return FillProgram(*op.mutable_register_program());
    case 19:
    case 20:
      return FillLaunch(*op.mutable_launch());
    case 21:
      return AddHandles(*op.mutable_drop_programs()->mutable_handles());
    default:
      op.mutable_abandon()->set_upload(random_.Below(12));
  }
}

wire::Frame HostileClient::DataFrame() {
  wire::Frame frame;
  frame.set_sequence(random_.Next());
  wire::Bulk& bulk = *frame.mutable_bulk();
  wire::ShardName& name = *bulk.mutable_name();
  name.set_session(random_.Percent(80) ? session_ : random_.Below(9));
  name.set_shard(static_cast<uint32_t>(random_.Below(3)));
  const uint64_t kind = random_.Below(100);
  if (kind < 80) {
    name.set_upload(random_.Below(12));
  } else if (kind < 90) {
    name.set_fetch(random_.Below(12));
  } else {
    name.set_transfer(random_.Below(40));
  }
  FillMeaning(bulk);
  return frame;
}

void HostileClient::FillMeaning(wire::Bulk& bulk) {
  switch (random_.Below(20)) {
    case 0:
    case 1:
      bulk.mutable_placed();
      return;
    case 2:
    case 3:
      bulk.mutable_dropped();
      return;
    case 4:
      bulk.mutable_received();
      return;
    case 5:
      bulk.mutable_resend();
      return;
    case 6:
    case 7:
      bulk.mutable_place_request()->set_size(Size());
      return;
    case 8:
      bulk.mutable_place_answer()->mutable_place()->set_size(Size());
      return;
    case 9:
      bulk.mutable_lent()->set_offset(Size());
      return;
    case 10:
      bulk.mutable_gone()->add_segments(Size());
      return;
    case 11:
      bulk.mutable_request()->add_into()->set_size(Size());
      return;
    case 12:
      bulk.mutable_failed()->set_code(static_cast<int32_t>(random_.Below(40)));
      return;
    default: {
      wire::ShardBytes& bytes = *bulk.mutable_bytes();
      bytes.set_offset(random_.Percent(60) ? 0 : Size());
      bytes.set_data(std::string(random_.Below(12), 'x'));
      bytes.set_last(random_.Percent(50));
      bytes.set_total(random_.Percent(50) ? 0 : Size());
    }
  }
}

}  // namespace gangway::simulation
