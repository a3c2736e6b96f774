// All of Gangway's API for C++ programs: sessions, arrays, functions and programs.
#ifndef GANGWAY_GANGWAY_H_
#define GANGWAY_GANGWAY_H_

#include "array.h"
#include "cluster.h"
#include "function.h"
#include "program.h"
#include "sharding.h"
#include "status.h"

#endif  // GANGWAY_GANGWAY_H_
