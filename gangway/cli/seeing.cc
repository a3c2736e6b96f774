// Implementation of seeing.h.
#include "gangway/cli/seeing.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/file_descriptor.h"
#include "gangway/base/private_file.h"
#include "gangway/base/status.h"
#include "gangway/cli/tool_link.h"
#include "gangway/cli/trace_file.h"
#include "gangway/cli/why_text.h"

namespace gangway::cli {
namespace {

constexpr std::chrono::seconds kTraceLimit{10};  // the controller waits 3 s for its processes
constexpr std::chrono::seconds kWhyLimit{5};     // the controller waits 2 s for schedulers

int Fail(const char* command, const absl::Status& status) {
  fprintf(stderr, "gangway %s: %s\n", command, std::string(status.message()).c_str());
  return 1;
}

absl::Status Ask(const ClusterChoice& cluster, const char* name, wire::Frame request,
                 std::chrono::milliseconds limit, std::function<bool(wire::Frame)> on_answer) {
  GANGWAY_ASSIGN_OR_RETURN(auto door, OpenControl(cluster));
  return AskTool(*door.transport, door.address, door.token, name, std::move(request), limit,
                 std::move(on_answer));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  absl::StatusOr<FileDescriptor> file = OpenOutput(path);
  absl::Status why = file.status();
  if (file.ok() && (!WriteAll(file->get(), text) || close(file->Release()) != 0))
    why = absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  if (why.ok()) return why;
  return absl::Status(why.code(), absl::StrCat(why.message(),
                                               ": check that its folder exists and has space, or "
                                               "choose another file with --out"));
}

}  // namespace

int WriteTrace(const SeeingOptions& options) {
  wire::Frame request;
  request.mutable_trace_request();
  TraceCollection collection;
  std::vector<std::string> missing;
  absl::Status asked = Ask(options.cluster, "gangway trace", std::move(request), kTraceLimit,
                           [&](const wire::Frame& frame) {
                             if (!frame.has_trace_reply()) return false;
                             const wire::TraceReply& reply = frame.trace_reply();
                             if (!reply.end()) collection.Add(reply);
                             missing.assign(reply.missing().begin(), reply.missing().end());
                             return reply.end();
                           });
  if (!asked.ok()) return Fail("trace", asked);
  const std::string text = ToPerfetto(collection.processes());
  if (absl::Status written = WriteFile(options.out, text); !written.ok())
    return Fail("trace", written);
  size_t records = 0;
  for (const auto& process : collection.processes()) {
    records += process.records.size();
    printf("%-20s pid %-8d %6zu records", process.name.c_str(),
           static_cast<int>(process.process_id), process.records.size());
    if (process.overwritten > 0)
      printf(", %llu older ones overwritten", static_cast<unsigned long long>(process.overwritten));
    if (process.offset_ns != 0) {
      printf(", clock adjusted by %lld us (+/- %llu us)",
             static_cast<long long>(process.offset_ns / 1000),
             static_cast<unsigned long long>(process.uncertain_ns / 1000));
    }
    printf("\n");
  }
  for (const std::string& name : missing)
    printf("%-20s did not answer: left out (see `gangway why`)\n", name.c_str());
  printf("%zu records in %s: open it at https://ui.perfetto.dev\n", records, options.out.c_str());
  return 0;
}

int Why(const SeeingOptions& options) {
  auto scope = ParseScope(options.scope);
  if (!scope.ok()) return Fail("why", scope.status());
  wire::Frame request;
  *request.mutable_why_request() = *scope;
  wire::WhyReply reply;
  absl::Status asked = Ask(options.cluster, "gangway why", std::move(request), kWhyLimit,
                           [&reply](wire::Frame frame) {
                             if (!frame.has_why_reply()) return false;
                             reply = std::move(*frame.mutable_why_reply());
                             return true;
                           });
  if (!asked.ok()) return Fail("why", asked);
  Arrange(reply, *scope);
  const std::string text = options.json ? WhyJson(reply) + "\n" : WhyText(reply, *scope);
  fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace gangway::cli
