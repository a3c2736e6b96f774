#!/usr/bin/env bash
# tools/docs/build.sh: builds the documentation as a site, build/docs/site/index.html, which needs no network or server.
# Fails on a page that mkdocs.yml does not list and on a broken link, also to a heading or a file of the repository.
# What it needs is not part of the product: Doxygen (tools/versions/doxygen.txt), and mkdocs in a venv of its own
# (tools/versions/docs.txt).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools/setup.sh --packages doxygen
rm -rf build/docs
mkdir -p build/docs
doxygen tools/docs/Doxyfile
python=$(tools/venv.sh docs)
export NO_MKDOCS_2_WARNING=1  # an advertisement
"$python" -m mkdocs --quiet build
echo "docs: $PWD/build/docs/site/index.html"
