// Where this process's binary finds what it needs: in the Python package that holds it, if a wheel installed it, or in
// the repository that holds its build. Binaries do not contain the path of either, so that both can be moved, and that
// builds of the same sources in two places have the same bytes.
//
// Threading: functions without state. Failure: none; what is not found is empty.
#ifndef GANGWAY_BASE_PACKAGE_H_
#define GANGWAY_BASE_PACKAGE_H_

#include <string>
#include <string_view>

namespace gangway {

// Of the running binary FOLDER/_bin/gangway, if FOLDER is a Python package; empty for a binary of a build.
std::string PackageFolder();

// The repository above a binary of a build: the nearest folder that has a pyproject.toml. Empty if there is none.
std::string SourceFolder();

// `path`, which is relative to the repository; an absolute path stays as it is.
std::string SourcePath(std::string_view path);

}  // namespace gangway

#endif  // GANGWAY_BASE_PACKAGE_H_
