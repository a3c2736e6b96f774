// A C++ program that tests drive by lines of its input, and that answers each by one line: the program of Figure 2 of
// the Pathways paper, as in examples/cpp/fan_out.cc, on slices of two devices.
//
//   program_client ADDRESS TOKEN
//   put            puts v = [1, 2] onto the first slice
//   launch N       launches f(v) N times, waits for each: "[ 3 5 ] [ 2 4 ], 3 frames", or the failure of the last one
//   submit         launches f(v), and neither waits for its end nor drops its results: "submitted"
//   frames         how many frames this process has sent
//   failure        of the last launch: "PROGRAM|SOURCE|WORKER|MESSAGE"
//   loop N         x = a(x), N times, without a wait; then the message of its status
//   busy           launches a program "waiting" of one call of 10 s on device 0, and does not wait for it
#include <gangway/connect.h>
#include <gangway/gangway.h>

#include <cstdlib>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using gangway::Array, gangway::Cluster, gangway::Function, gangway::Mesh, gangway::Sharding,
    gangway::Status;

template <typename T>
T Value(gangway::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::cerr << result.status().message() << "\n";
  std::exit(1);
}

constexpr char kBusy[] = R"(module @busy {
  func.func public @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
    %r:2 = stablehlo.custom_call @gangway_simulated_work(%x, %x)
        {api_version = 4 : i32, backend_config = {microseconds = 10000000 : i64}}
        : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    return %r#0, %r#1 : tensor<f32>, tensor<f32>
  }
})";

class Figure2 {
 public:
  explicit Figure2(const Cluster& cluster) : cluster_(cluster) {
    Put();
    program_ = Value(gangway::Trace(cluster_, "f",
                                    [this](std::span<const Array> in) -> std::vector<Array> {
                                      const Array x = a_(in[0]);
                                      return {b_(x), a_(c_(x))};
                                    },
                                    {v_}));
  }

  void Put() { v_ = cluster_.Put<float>({1, 2}, {2}, Sharding(a_.mesh(), {"x"})); }

  std::string Launch(int count) {
    const uint64_t before = gangway::TrafficOfProcess().frames_sent;
    std::vector<Array> results;
    for (int i = 0; i < count; ++i) {
      results = program_({v_});
      last_ = cluster_.Wait(results);
    }
    const uint64_t frames = gangway::TrafficOfProcess().frames_sent - before;
    if (!last_.ok()) return last_.message();
    std::ostringstream text;
    for (const Array& result : results) {
      text << "[ ";
      for (const float value : Value(result.Get<float>())) text << value << " ";
      text << "] ";
    }
    text << frames << " frames";
    return text.str();
  }

  std::string Submit() {
    submitted_.push_back(program_({v_}));
    return "submitted";
  }

  std::string Failure() const {
    const gangway::FailureRecord record = last_.record();
    return record.program + "|" + record.source + "|" + record.worker + "|" + last_.message();
  }

  std::string Busy() {
    const Mesh mesh({0}, {});
    const Function busy = Value(cluster_.Compile(kBusy, mesh));
    const Array x = cluster_.Put<float>({1}, {}, Sharding(mesh));
    const auto call = [&busy](std::span<const Array> in) -> std::vector<Array> {
      return {busy.Call<2>({in[0]})[1]};
    };
    busy_ = Value(gangway::Trace(cluster_, "waiting", call, {x}))(x);
    return "busy";
  }

  std::string Loop(int count) {
    Array x = v_;
    for (int i = 0; i < count; ++i) x = a_(x);
    const Status status = x.Wait();
    return status.ok() ? "OK" : status.message();
  }

 private:
  Function Compile(const std::string& name, const std::string& operation, const std::string& number,
                   const std::vector<uint32_t>& devices) {
    const Mesh mesh(devices, {{"x", 2}});
    const std::string text = "module @" + name + R"( {
      func.func public @main(%x: tensor<1xf32>) -> tensor<1xf32> {
        %n = stablehlo.constant dense<)" +
                             number + R"(> : tensor<1xf32>
        %y = stablehlo.)" + operation +
                             R"( %x, %n : tensor<1xf32>
        return %y : tensor<1xf32>
      }
    })";
    return Value(cluster_.Compile(text, mesh, {.results = {Sharding(mesh, {"x"})}}));
  }

  const Cluster cluster_;
  const Function a_ = Compile("a", "multiply", "2.0", {0, 1});
  const Function b_ = Compile("b", "add", "1.0", {2, 3});
  const Function c_ = Compile("c", "divide", "2.0", {4, 5});
  Array v_;
  gangway::Program program_;
  Status last_;
  std::vector<std::vector<Array>> submitted_;  // their results
  Array busy_;
};

std::string Answer(Figure2& figure, const std::string& command, int count) {
  if (command == "put") return figure.Put(), "put";
  if (command == "launch") return figure.Launch(count);
  if (command == "submit") return figure.Submit();
  if (command == "frames") return std::to_string(gangway::TrafficOfProcess().frames_sent);
  if (command == "failure") return figure.Failure();
  if (command == "busy") return figure.Busy();
  if (command == "loop") return figure.Loop(count);
  return "unknown";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Figure2 figure(
      Value(gangway::Connect({.address = argv[1], .token = argv[2], .name = "program client"})));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int count = 1;
    words >> command >> count;
    std::cout << Answer(figure, command, count) << std::endl;
  }
}
