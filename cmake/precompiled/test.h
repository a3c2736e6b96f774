// What most tests include, compiled once (see GangwayTargets.cmake).
#ifndef CMAKE_PRECOMPILED_TEST_H_
#define CMAKE_PRECOMPILED_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled/product.h"

#endif  // CMAKE_PRECOMPILED_TEST_H_
