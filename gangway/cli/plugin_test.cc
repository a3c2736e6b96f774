// Tests of plugin.h, on trees that look like Python environments.
#include "gangway/cli/plugin.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gangway::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    fs::create_directories(root_);
    for (const char* name : {"GANGWAY_PLUGIN", "GANGWAY_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX",
                             "PATH", "PYTHONPATH", "HOME"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name,
                           value == nullptr ? std::nullopt : std::optional<std::string>(value));
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value) setenv(name.c_str(), value->c_str(), 1);
      if (!value) unsetenv(name.c_str());
    }
    fs::remove_all(root_);
  }

  // Creates a file below the test's folder; returns its path.
  std::string File(const std::string& path) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "x";
    chmod((root_ / path).c_str(), 0755);
    return (root_ / path).string();
  }
  static std::string Cuda(const std::string& packages, int version) {
    return packages + "/jax_plugins/xla_cuda" + std::to_string(version) + "/xla_cuda_plugin.so";
  }
  void Set(const char* name, const std::string& path) const {
    setenv(name, (root_ / path).c_str(), 1);
  }

  fs::path root_;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(PluginTest, CpuIsTheDefaultAndHasAName) {
  auto given = FindPlugin("");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(*given, HasSubstr("pjrt_c_api_cpu_plugin.so"));
  Set("GANGWAY_PLUGIN", "other.so");
  EXPECT_EQ(*FindPlugin("cpu"), *given);
  EXPECT_THAT(std::string(FindPlugin("").status().message()), HasSubstr("other.so"));
}

TEST_F(PluginTest, CudaOfTheActiveEnvironmentComesFirstAndTheNewerOneOfIt) {
  const std::string other = File(Cuda("usr/lib/python3.11/site-packages", 13));
  File("usr/bin/python3");
  const std::string twelve = File(Cuda("env/lib/python3.12/site-packages", 12));
  setenv("PATH", (root_ / "nothing:").string().append(root_ / "usr/bin").c_str(), 1);
  EXPECT_EQ(*FindPlugin("cuda"), other);
  Set("VIRTUAL_ENV", "env");
  EXPECT_EQ(*FindPlugin("cuda"), twelve);
  EXPECT_EQ(*FindPlugin("cuda13"), other);
  const std::string thirteen = File(Cuda("env/lib/python3.12/site-packages", 13));
  EXPECT_EQ(*FindPlugin("cuda"), thirteen);
  EXPECT_EQ(*FindPlugin("cuda12"), twelve);
  setenv("GANGWAY_PLUGIN", "cuda12", 1);
  EXPECT_EQ(*FindPlugin(""), twelve);
}

TEST_F(PluginTest, CudaOfThePythonThatRunsScriptsComesFirst) {
  const std::string active = File(Cuda("active/lib/python3.12/site-packages", 13));
  const std::string scripts = File(Cuda("scripts/lib/python3.13/site-packages", 12));
  Set("VIRTUAL_ENV", "active");
  Set("GANGWAY_PYTHON", "scripts/bin/python");
  EXPECT_EQ(*FindPlugin("cuda"), scripts);
  EXPECT_EQ(*FindPlugin("cuda13"), active);
  setenv("GANGWAY_PYTHON", "python3", 1);  // one of PATH
  EXPECT_EQ(*FindPlugin("cuda"), active);
}

TEST_F(PluginTest, PythonPathAndTheUsersOwnPackages) {
  const std::string own = File(Cuda("home/.local/lib/python3.11/site-packages", 12));
  Set("HOME", "home");
  EXPECT_EQ(*FindPlugin("cuda"), own);
  const std::string path = File(Cuda("more", 12));
  Set("PYTHONPATH", "more");
  EXPECT_EQ(*FindPlugin("cuda"), path);
}

TEST_F(PluginTest, AnAbsentOneIsLookedForInNamedPlacesAndToBeInstalled) {
  EXPECT_THAT(std::string(FindPlugin("cuda").status().message()),
              HasSubstr("no CUDA plugin (jax_plugins/xla_cuda13/xla_cuda_plugin.so, "
                        "jax_plugins/xla_cuda12/xla_cuda_plugin.so) is installed in any Python"));
  File("env/lib/python3.12/site-packages/jax/__init__.py");
  Set("VIRTUAL_ENV", "env");
  const absl::Status absent = FindPlugin("cuda12").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()),
              AllOf(HasSubstr((root_ / "env/lib/python3.12/site-packages").string()),
                    HasSubstr("pip install 'jax[cuda12]'"), HasSubstr("--plugin")));
}

TEST_F(PluginTest, NamesOfNothing) {
  const absl::Status unknown = FindPlugin("rocm").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), AllOf(HasSubstr("rocm"), HasSubstr("cpu, cuda")));
}

}  // namespace
}  // namespace gangway::cli
