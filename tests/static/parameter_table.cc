// SPDX-License-Identifier: Apache-2.0
//
// Prints the table of parameters as README.md must hold it.
#include <cstdio>

#include "base/config.h"

int main() { std::fputs(railyard::parameter_table().c_str(), stdout); }
