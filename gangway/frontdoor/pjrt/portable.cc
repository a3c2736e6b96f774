// Implementation of portable.h.
#include "gangway/frontdoor/pjrt/portable.h"

#include <span>

#include "gangway/base/status.h"
#include "gangway/frontdoor/pjrt/event.h"

namespace gangway::pjrt {

Compiled::~Compiled() {
  if (handle_ != ExecutableHandle())
    client_->DropExecutables(std::span<const ExecutableHandle>(&handle_, 1));
}

absl::StatusOr<Compiled> CompileFor(Client* client, const Source& source,
                                    const std::vector<uint32_t>& devices) {
  auto done = std::make_shared<Outcome>(client);
  auto info = std::make_shared<std::shared_ptr<const ExecutableInfo>>();
  Compiled compiled(
      client, client->Compile(
                  source.stored->program, source.stored->format, source.options.SerializeAsString(),
                  devices, [done, info](const Result<std::shared_ptr<const ExecutableInfo>>& made) {
                    if (made.ok()) *info = *made;
                    done->Set(made.status());
                  }));
  GANGWAY_RETURN_IF_ERROR(WaitFor(*done));
  compiled.info = *info;
  return compiled;
}

absl::Status CheckPortable(const xla::CompileOptionsProto& options) {
  const auto& build = options.executable_build_options();
  if (!options.compile_portable_executable()) return absl::OkStatus();
  if (build.has_device_assignment() || build.num_replicas() > 1 || build.num_partitions() > 1) {
    return absl::InvalidArgumentError(
        "a portable executable runs on one device, which each call names; the compile options ask "
        "for a portable one and for devices or several replicas or partitions");
  }
  return absl::OkStatus();
}

Portable::Portable(Client* client, std::shared_ptr<Drops> drops, Source source)
    : client_(client), drops_(std::move(drops)), source_(std::move(source)) {}

void Portable::Add(uint32_t device, ExecutableHandle executable) {
  const MutexLock lock(mutex_);
  executables_[device] = executable;
}

absl::StatusOr<ExecutableHandle> Portable::For(uint32_t device) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = executables_.find(device); found != executables_.end())
      return found->second;
  }
  // Without the lock: a thread that waits may run a callback that executes the same program.
  GANGWAY_ASSIGN_OR_RETURN(Compiled compiled, CompileFor(client_, source_, {device}));
  const MutexLock lock(mutex_);
  if (const auto found = executables_.find(device); found != executables_.end())
    return found->second;  // of another thread; this one is dropped
  return executables_[device] = compiled.Take();
}

void Portable::Drop() {
  const MutexLock lock(mutex_);
  for (const auto& [device, executable] : executables_) drops_->Executable(executable);
  executables_.clear();
}

}  // namespace gangway::pjrt
