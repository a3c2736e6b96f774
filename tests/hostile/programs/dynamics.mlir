// name: infeed
// tries: Wait for a value that nothing sends: the device is held for good.
// expect: refused infeed
module @m { func.func public @main() -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %v:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %v#0 : tensor<4xf32>
} }
// -----
// name: outfeed
// tries: Send to a queue that nothing reads.
// expect: refused outfeed
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %o = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<4xf32>
} }
// -----
// name: send-to-the-host
// tries: Send to a host that does not listen.
// expect: refused send
module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %o = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<4xf32>
} }
// -----
// name: receive-from-the-host
// tries: Wait for a host that does not send.
// expect: refused recv
module @m { func.func public @main() -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %v:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 5, type = 3>, is_host_transfer = true} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %v#0 : tensor<4xf32>
} }
// -----
// name: set-dimension-size
// tries: A dynamic dimension whose size is beyond its bound.
// expect: refused dynamic
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<f32> {
  %d = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
} }
// -----
// name: get-dimension-size-of-what-grew
// tries: Read the size that set-dimension-size gave.
// expect: refused dynamic
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<i32> {
  %d = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  %y = stablehlo.get_dimension_size %d, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
  return %y : tensor<i32>
} }
// -----
// name: dynamic-reshape
// tries: A shape that is computed from an argument.
// expect: fails
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %n: tensor<2xi32>) -> tensor<?x?xf32> {
  %y = stablehlo.dynamic_reshape %x, %n : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
} }
// -----
// name: dynamic-reshape-with-bounds
// tries: The same with bounds, which XLA can compile.
// expect: fails
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %n: tensor<1xi32>) -> tensor<?xf32, #stablehlo.bounds<65536>> {
  %y = stablehlo.dynamic_reshape %x, %n : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32, #stablehlo.bounds<65536>>
  return %y : tensor<?xf32, #stablehlo.bounds<65536>>
} }
// -----
// name: real-dynamic-slice
// tries: Slices whose ends are computed from arguments.
// expect: fails
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %a: tensor<1xi32>) -> tensor<?xf32> {
  %y = stablehlo.real_dynamic_slice %x, %a, %a, %a : (tensor<4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
} }
// -----
// name: dynamic-iota
// tries: An iota of a size from an argument.
// expect: fails
// fill: 127
module @m { func.func public @main(%n: tensor<1xi32>) -> tensor<?xf32> {
  %y = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
} }
// -----
// name: parameter-without-size
// tries: A parameter of an unknown size.
// expect: fails
module @m { func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
} }
// -----
// name: parameter-with-a-bound
// tries: A parameter with a bound, whose size the runtime reads behind its buffer.
// expect: refused dynamic
module @m { func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
} }
// -----
// name: dynamic-gather-by-name
// tries: A dynamic operation as a custom call, which XLA's reader makes an operation of.
// expect: fails
// fill: 127
module @m { func.func public @main(%x: tensor<4xf32>, %a: tensor<1xi32>) -> tensor<?xf32> {
  %y = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %a) : (tensor<4xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
} }
