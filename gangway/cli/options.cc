// Implementation of options.h.
#include "gangway/cli/options.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

#include "gangway/base/spin.h"

namespace gangway::cli {

void AddStateDir(CLI::App* command, std::string& state_root) {
  command->add_option("--state-dir", state_root, "default: GANGWAY_STATE_DIR, or ~/.gangway");
}

void AddCluster(CLI::App* command, ClusterChoice& cluster) {
  command
      ->add_option("--port", cluster.port,
                   "the cluster's front door (default: GANGWAY_PORT, or 38600)")
      ->check(CLI::Range(1, 65535));
  AddStateDir(command, cluster.state_root);
}

// Not by `envname`: commands share their options, and one that is not given would set the variable's value, over the
// option of the one that is.
void AddTls(CLI::App* command, std::string& tls) {
  if (const char* named = std::getenv("GANGWAY_TLS")) tls = named;
  command->add_option("--tls", tls, "a folder that `gangway certs` made (default: GANGWAY_TLS)");
}

void AddAnyCluster(CLI::App* command, ClusterChoice& cluster) {
  AddCluster(command, cluster);
  command->add_option("--connect", cluster.connect,
                      "a controller, as HOST:PORT, instead of a cluster of this host (default: "
                      "GANGWAY_ADDRESS, unless --port or --state-dir is given)");
  AddTls(command, cluster.tls);
}

void AddWaits(CLI::App* command, WaitLimits& waits) {
  command
      ->add_option("--session-wait", waits.session_s,
                   "seconds that a new client waits for a worker and, after the start, for all")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--worker-wait", waits.worker_s,
                   "seconds that work waits for a worker that is down")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command
      ->add_option("--late-after", waits.late_s,
                   "seconds in a collective after which the log names the late members")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--collective-limit", waits.collective_s,
                   "seconds in a collective after which the gang is aborted")
      ->check(CLI::Range(uint32_t{1}, kCollectiveLimitMaxS))
      ->capture_default_str();
  command
      ->add_option("--orphan-limit", waits.orphan_s,
                   "seconds that work of an ended session may still run on a device before its "
                   "worker is restarted")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--callback-hold", waits.callback_hold_s,
                   "seconds that a session's host callbacks may hold a device for which others "
                   "wait")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command
      ->add_option("--quarantine", waits.quarantine_s,
                   "seconds for which a program that has ended workers is refused; 0: never")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
}

void AddCollectives(CLI::App* command, std::string& collectives) {
  command
      ->add_option("--collectives", collectives,
                   "of programs inside a worker: gangway, on CPU devices, or xla, the device "
                   "runtime's. Programs over several workers have Gangway's")
      ->check(CLI::IsMember({"xla", kOwnCollectives}))
      ->capture_default_str();
}

void AddIsolation(CLI::App* command, std::string& isolation) {
  command
      ->add_option(
          "--isolation", isolation,
          "of sessions: none, or process: sessions of different owners share no worker and "
          "no compiler process. A session belongs to its client's certificate, if it has "
          "one, else to nobody else")
      ->check(CLI::IsMember({kNoIsolation, kProcessIsolation}))
      ->capture_default_str();
}

void AddLatencyRequest(CLI::App* command, bool& wanted) {
  command->add_flag_callback(
      "--no-latency-request", [&wanted] { wanted = false; },
      "let idle cores sleep while something is under way; without this, processes then hold "
      "/dev/cpu_dma_latency open, where they may");
}

void AddSpin(CLI::App* command) {
  command
      ->add_option_function<uint32_t>(
          "--spin-us",
          [](const uint32_t& limit_us) {
            (void)setenv(SpinRule::kVariable, std::to_string(limit_us).c_str(), /*replace=*/1);
          },
          absl::StrCat("microseconds, for a third of which the loop of this process, and of those "
                       "that it starts, looks for the next message before it sleeps, where its "
                       "host has a free core; 0: not at all (default: ",
                       SpinRule::kVariable, ", or ", SpinRule::kDefaultUs, ")"))
      ->check(CLI::Range(0U, SpinRule::kMaxUs));
}

void AddCompilers(CLI::App* command, CompilerChoice& compilers) {
  command
      ->add_option("--compilers", compilers.count,
                   "compiler processes; the first always runs, the others while they have work")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command
      ->add_option("--compiler-memory", compilers.memory_bytes,
                   "of each compiler, as 4GB: a program that needs more is refused; 0: no limit "
                   "(default: a quarter of this machine's)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
  command
      ->add_option("--compile-limit", compilers.limit_s,
                   "seconds after which the compile of a program is ended")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
}

void AddDeviceMemory(CLI::App* command, device::DeviceMemory& memory) {
  command
      ->add_option("--device-memory-fraction", memory.fraction,
                   "of each device's memory that a worker takes, as 0.4 where two workers share "
                   "GPUs (default: the plugin's choice; CUDA: 0.75)")
      ->check(CLI::Range(0.01, 1.0));
  command->add_flag_callback(
      "--no-preallocate", [&memory] { memory.preallocate = false; },
      "take a GPU's memory when it is needed, not all of that at the start");
}

void AddFrontDoorPort(CLI::App* command, int& port) {
  command
      ->add_option("--port", port,
                   "of JAX's front door on this host, and of the state folder; 0: any free one "
                   "(default: GANGWAY_PORT, or 38600)")
      ->check(CLI::Range(0, 65535));
}

void AddHeadMemory(CLI::App* command, std::optional<uint64_t>& bytes) {
  command
      ->add_option("--head-memory", bytes,
                   "that the controller holds for clients, as 4GB: programs, and arrays that pass "
                   "through JAX's front door (default: a quarter of this machine's)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::PositiveNumber);
}

}  // namespace gangway::cli
