// Where the wheel puts what this process's binary needs: the folder of the Python package that holds it.
//
// Threading: a function without state. Failure: none.
#ifndef GANGWAY_BASE_PACKAGE_H_
#define GANGWAY_BASE_PACKAGE_H_

#include <string>

namespace gangway {

// Of the running binary FOLDER/_bin/gangway, if FOLDER is a Python package; empty for a binary of a build.
std::string PackageFolder();

}  // namespace gangway

#endif  // GANGWAY_BASE_PACKAGE_H_
