// The real PJRT plugin, except that a test can block Execute: while the folder GANGWAY_TEST_BLOCK_DIR
// holds a FIFO named after the process id, a thread that calls Execute blocks in the kernel until the
// test opens the other end. While it holds a file named after the process id and ".refuse", whose text is a device's id
// in this process, Execute is refused on that device. A FIFO with the suffix ".load" blocks the load of an executable,
// and a file with ".refuse_load" refuses it. Compile of programs whose text has the name blocks_the_compiler blocks,
// too. A program whose text has the name ends_the_compiler ends the process that compiles it, and so does one with
// escapes_the_compiler if it can open a file, make a socket or a process from there.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gangway/device/pjrt/testdata/real_plugin.h"

namespace {

const PJRT_Api* Real() {
  static const PJRT_Api* const api = gangway::device::LoadRealPlugin(GANGWAY_TEST_REAL_PLUGIN);
  return api;
}

// In the test's folder, named after this process. Without a folder, it does not exist.
std::string TestFile() {
  const char* folder = std::getenv("GANGWAY_TEST_BLOCK_DIR");
  return folder == nullptr ? "" : std::string(folder) + "/" + std::to_string(getpid());
}

void Block(const std::string& fifo = TestFile()) {
  if (const int fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) close(fd);
}

bool CanEscape() {
  const std::string made = TestFile() + ".escaped";
  if (open(made.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600) >= 0) return true;
  if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0) return true;
  if (socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0) return true;
  if (socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0) return true;
  if (kill(getppid(), 0) == 0) return true;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return child > 0;
}

PJRT_Error* Compile(PJRT_Client_Compile_Args* args) {
  const std::string_view code(args->program->code, args->program->code_size);
  if (code.find("ends_the_compiler") != std::string_view::npos) std::abort();
  if (code.find("escapes_the_compiler") != std::string_view::npos && CanEscape()) std::abort();
  if (code.find("blocks_the_compiler") != std::string_view::npos) Block();
  return Real()->PJRT_Client_Compile(args);
}

// The real plugin refuses no bytes, with an error that is not of the executable itself.
PJRT_Error* Load(PJRT_Executable_DeserializeAndLoad_Args* args) {
  Block(TestFile() + ".load");
  PJRT_Executable_DeserializeAndLoad_Args copy = *args;
  if (access((TestFile() + ".refuse_load").c_str(), F_OK) == 0) copy.serialized_executable_size = 0;
  PJRT_Error* const error = Real()->PJRT_Executable_DeserializeAndLoad(&copy);
  args->loaded_executable = copy.loaded_executable;
  return error;
}

int IdOf(PJRT_Device* device) {
  PJRT_Device_GetDescription_Args description{};
  description.struct_size = sizeof(description);
  description.device = device;
  Real()->PJRT_Device_GetDescription(&description);
  PJRT_DeviceDescription_Id_Args id{};
  id.struct_size = sizeof(id);
  id.device_description = description.device_description;
  Real()->PJRT_DeviceDescription_Id(&id);
  return id.id;
}

// The real plugin refuses an execute with a wrong number of arguments.
PJRT_Error* Refuse(const PJRT_LoadedExecutable_Execute_Args& args) {
  PJRT_LoadedExecutable_Execute_Args wrong = args;
  wrong.num_args = args.num_args + 1;
  std::vector<PJRT_Buffer*> arguments(args.argument_lists[0],
                                      args.argument_lists[0] + args.num_args);
  arguments.push_back(arguments.empty() ? nullptr : arguments[0]);
  PJRT_Buffer* const* list = arguments.data();
  wrong.argument_lists = &list;
  return Real()->PJRT_LoadedExecutable_Execute(&wrong);
}

PJRT_Error* Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  Block();
  int refused = -1;
  if (std::ifstream(TestFile() + ".refuse") >> refused && args->execute_device != nullptr &&
      IdOf(args->execute_device) == refused)
    return Refuse(*args);
  return Real()->PJRT_LoadedExecutable_Execute(args);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api = [] {
    PJRT_Api copy;
    std::memcpy(&copy, Real(), sizeof(copy));
    copy.PJRT_Client_Compile = &Compile;
    copy.PJRT_LoadedExecutable_Execute = &Execute;
    copy.PJRT_Executable_DeserializeAndLoad = &Load;
    return copy;
  }();
  return &api;
}
