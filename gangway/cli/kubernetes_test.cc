// The manifests of `gangway kubernetes`, against files that people have read; tests/test_kubernetes.py validates these
// files against the schemas of Kubernetes, JobSet and Kueue.
#include "gangway/cli/kubernetes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

#include "gangway/base/package.h"

namespace gangway::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ClusterConfig Parsed(const std::string& text) {
  auto config = ParseConfig(text, "cluster.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ClusterConfig{};
}

KubernetesOptions Options() {
  KubernetesOptions options;
  options.config = "cluster.toml";
  options.image = "registry.example/gangway:0.1.0";
  return options;
}

std::string Golden(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(SourcePath(absl::StrCat(GANGWAY_TESTDATA, "/", name))).rdbuf();
  return text.str();
}

std::string ErrorOf(const std::string& config, const KubernetesOptions& options,
                    const KubernetesFiles& files = {}) {
  auto made = KubernetesManifests(Parsed(config), options, files);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(made.status().message());
}

constexpr char kSmall[] = "[[island]]\nworkers = 2\ndevices = 4\n";

TEST(KubernetesTest, AClusterForClientsFromElsewhere) {
  auto made = KubernetesManifests(Parsed(kSmall), Options(), {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, Golden("kubernetes_small.yaml"));
}

TEST(KubernetesTest, GpusTwoIslandsAQueueASecretAndAScript) {
  KubernetesOptions options = Options();
  options.name = "train";
  options.name_space = "research";
  options.queue = "gpus";
  options.worker = {.cpu = "8", .memory = "64Gi"};
  options.ships_script = true;
  options.arguments = {"some/train.py", "--steps", "10"};
  auto made = KubernetesManifests(
      Parsed("plugin = \"cuda\"\n[controller]\nworker_wait = 60\n"
             "[[island]]\nworkers = 2\ndevices = 8\n[[island]]\nworkers = 16\ndevices = 4\n"),
      options,
      {.tls = {{"ca.pem", "authority\n"}, {"cert.pem", "c"}, {"token", "t"}},
       .client_tls = {{"cert.pem", "d"}},
       .script = "import jax\nprint(1)\n"});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, Golden("kubernetes_gpus.yaml"));
}

TEST(KubernetesTest, AWorkerHasTheMemoryThatTheFileGivesItsDevices) {
  auto made = KubernetesManifests(
      Parsed("memory = \"6GB\"\n[[island]]\nworkers = 1\ndevices = 2\n"), Options(), {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, HasSubstr("memory: \"24Gi\""));
  made = KubernetesManifests(
      Parsed("memory = \"70GB\"\nplugin = \"cuda\"\n[[island]]\nworkers = 1\ndevices = 2\n"),
      Options(), {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, HasSubstr("memory: \"16Gi\"")) << "a GPU's memory is not the host's";
}

TEST(KubernetesTest, APathInTheImageIsNotShipped) {
  KubernetesOptions options = Options();
  options.arguments = {"/app/train.py", "-x"};
  auto made = KubernetesManifests(Parsed(kSmall), options, {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, HasSubstr("- run\n              - /app/train.py\n              - \"-x\"\n"));
}

TEST(KubernetesTest, NamesThatAreNoLabelsAreRefused) {
  KubernetesOptions options = Options();
  for (const char* name : {"", "Train", "1st", "a.b", "a_b", "-a", "a-", "a b", "a\n", "é"}) {
    options.name = name;
    EXPECT_THAT(ErrorOf(kSmall, options), AllOf(HasSubstr("--name"), HasSubstr("lower-case")))
        << name;
  }
  options.name = std::string(64, 'a');
  EXPECT_THAT(ErrorOf(kSmall, options), HasSubstr("no DNS label"));
}

TEST(KubernetesTest, ANameWithWhichThoseOfPodsAreTooLongIsRefused) {
  KubernetesOptions options = Options();
  options.name = std::string(44, 'a');  // and -island-0-0-1-abcde are 63
  EXPECT_TRUE(KubernetesManifests(Parsed(kSmall), options, {}).ok());
  options.name += 'a';
  EXPECT_THAT(ErrorOf(kSmall, options), HasSubstr("has 45 characters: with more than 44"));
  options.name.resize(44);
  EXPECT_THAT(ErrorOf("[[island]]\nworkers = 100\n", options), HasSubstr("more than 43"));
}

TEST(KubernetesTest, WrongOptionsAreNamed) {
  const auto error_with = [](auto change) {
    KubernetesOptions options = Options();
    change(options);
    return ErrorOf(kSmall, options);
  };
  EXPECT_THAT(error_with([](auto& o) { o.arguments = {"--que", "gpus"}; }),
              HasSubstr("no option --que"));
  EXPECT_THAT(error_with([](auto& o) { o.image = ""; }), HasSubstr("--image"));
  EXPECT_THAT(error_with([](auto& o) { o.image = "a b"; }), HasSubstr("--image"));
  EXPECT_THAT(error_with([](auto& o) { o.name_space = "A"; }), HasSubstr("--namespace"));
  EXPECT_THAT(error_with([](auto& o) { o.queue = "a/b"; }), HasSubstr("--queue"));
  EXPECT_THAT(error_with([](auto& o) { o.secret = "A"; }), HasSubstr("--secret"));
  EXPECT_THAT(error_with([](auto& o) { o.client_secret = "a b"; }), HasSubstr("--client-secret"));
  EXPECT_THAT(error_with([](auto& o) { o.accelerator = "gpu"; }), HasSubstr("nvidia.com/gpu"));
  for (const char* quantity : {"0", "-1", "4GB", "x", "1 Gi", "1.2.3", "."}) {
    EXPECT_THAT(error_with([&](auto& o) { o.worker.cpu = quantity; }), HasSubstr("--cpu"));
    EXPECT_THAT(error_with([&](auto& o) { o.head.memory = quantity; }), HasSubstr("--head-memory"));
    EXPECT_THAT(error_with([&](auto& o) { o.script.cpu = quantity; }), HasSubstr("--script-cpu"));
  }
}

TEST(KubernetesTest, AFileThatNamesHostsIsRefused) {
  EXPECT_THAT(ErrorOf("[[island]]\nworkers = [ { host = \"a\", devices = 2 }, { devices = 2 } ]\n",
                      Options()),
              AllOf(HasSubstr("island 0"), HasSubstr("host a"), HasSubstr("workers = 2")));
  EXPECT_THAT(ErrorOf("[[island]]\nworkers = [ { devices = 2 }, { devices = 1 } ]\n", Options()),
              HasSubstr("an island of its own"));
  EXPECT_THAT(
      ErrorOf("[[island]]\nworkers = 1\nscheduler = { host = \"a\", port = 7 }\n", Options()),
      HasSubstr("remove scheduler"));
}

TEST(KubernetesTest, AFileThatPutsTheControllerElsewhereIsRefused) {
  const std::string island = "\n[[island]]\nworkers = 1\n";
  EXPECT_THAT(ErrorOf("[controller]\nhost = \"a\"" + island, Options()), HasSubstr("remove host"));
  EXPECT_THAT(ErrorOf("[controller]\nlisten = \"127.0.0.1\"" + island, Options()),
              HasSubstr("remove listen"));
  EXPECT_THAT(ErrorOf("[controller]\ncontrol_port = 0" + island, Options()),
              HasSubstr("control_port of 0"));
  const ClusterConfig named = Parsed("[controller]\nhost = \"gangway-head\"" + island);
  EXPECT_TRUE(KubernetesManifests(named, Options(), {}).ok());
}

TEST(KubernetesTest, AScriptThatCannotBeShippedIsRefused) {
  KubernetesOptions options = Options();
  options.ships_script = true;
  EXPECT_THAT(ErrorOf(kSmall, options), HasSubstr("needs a script"));
  options.arguments = {"my script.py"};
  EXPECT_THAT(ErrorOf(kSmall, options, {.script = "x"}), HasSubstr("key of a ConfigMap"));
  options.arguments = {"x.py"};
  EXPECT_THAT(ErrorOf(kSmall, options, {.script = std::string(1'000'000, 'x')}),
              HasSubstr("put the script into the image"));
  EXPECT_THAT(ErrorOf(kSmall, options, {.script = "\xff"}), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace gangway::cli
