// name: main-is-missing
// tries: A module without an entry.
// expect: fails
module @m { func.func public @other(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> } }
// -----
// name: nothing-but-a-module
// tries: A module without a function.
// expect: fails
module @m { }
// -----
// name: function-that-calls-itself
// tries: A recursive function.
// expect: bounded
module @m {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
// -----
// name: ragged-exchange-without-a-channel
// tries: A call that XLA's reader of StableHLO makes a collective of, without the attribute that it reads.
// expect: bounded
module @m { func.func public @main(%x: tensor<4xf32>, %l: tensor<1xi32>) -> tensor<4xf32> {
  %y = stablehlo.custom_call @ragged_all_to_all(%x, %x, %l, %l, %l, %l) {api_version = 4 : i32, backend_config = {replica_groups = dense<[[0]]> : tensor<1x1xi64>}} : (tensor<4xf32>, tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: ragged-exchange-without-lists
// tries: The same call with fewer operands than it has.
// expect: fails
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.custom_call @ragged_all_to_all(%x) {api_version = 4 : i32, backend_config = {channel_id = 1 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: element-count-that-overflows
// tries: A type of 2^80 elements, whose product is 0 in 64 bits.
// expect: bounded
module @m { func.func public @main(%x: tensor<1048576x1048576x1048576x1048576xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0, 1, 2, 3] : (tensor<1048576x1048576x1048576x1048576xf32>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
} }
// -----
// name: bytes-that-overflow
// tries: A type of 2^62 elements, whose bytes are 0 in 64 bits.
// expect: bounded
module @m { func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %b = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<2147483648x2147483648xf32>
  %y = stablehlo.slice %b [0:1, 0:1] : (tensor<2147483648x2147483648xf32>) -> tensor<1x1xf32>
  %r = stablehlo.reshape %y : (tensor<1x1xf32>) -> tensor<f32>
  return %r : tensor<f32>
} }
// -----
// name: argument-names-of-control-characters
// tries: Names with escape sequences, which may reach a terminal.
// expect: harmless
module @"\1B[2J\0Aforged" { func.func public @main(%x: tensor<4xf32> {jax.arg_info = "\1B]0;x\07"}) -> (tensor<4xf32> {jax.result_info = "\0D\0A"}) {
  %y = stablehlo.add %x, %x : tensor<4xf32> loc("\1B[31m\0A":1:1)
  return %y : tensor<4xf32>
} }
// -----
// name: aliases-of-another-shape
// tries: A result in the memory of an argument that is smaller.
// expect: fails
module @m { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<65536xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<65536xf32>
  return %c : tensor<65536xf32>
} }
// -----
// name: aliases-of-one-result
// tries: Two arguments that give their memory to one result.
// expect: fails
module @m { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %z: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
  %y = stablehlo.add %x, %z : tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: aliases-of-no-result
// tries: An argument that gives its memory to a result that does not exist.
// expect: fails
module @m { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 7000 : i32}) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
} }
// -----
// name: composite-of-another-signature
// tries: A composite whose decomposition has another signature.
// expect: fails
module @m {
  func.func private @impl(%x: tensor<65536xf32>) -> tensor<65536xf32> { return %x : tensor<65536xf32> }
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = stablehlo.composite "my.op" %x {decomposition = @impl} : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
