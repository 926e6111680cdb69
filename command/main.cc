// SPDX-License-Identifier: Apache-2.0
//
// railyard: the command beside the library.
#include <cstdio>
#include <string_view>

#include "explain.h"
#include "run.h"

int main(int argc, char** argv) {
  CLI::App app{
      "railyard carries the messages of NCCL programs between nodes in two phases: along the "
      "rail,\n"
      "then over NVLink."};
  app.name("railyard");
  app.set_version_flag("--version", RAILYARD_VERSION);
  app.allow_extras();  // to name what is no command
  railyard::command::RunOptions options;
  const CLI::App* const run = railyard::command::add_run(app, &options);
  railyard::command::ExplainOptions explained;
  const CLI::App* const explain = railyard::command::add_explain(app, &explained);

  // What comes after "--" is the program's, options included.
  int own = 1;
  while (own < argc && std::string_view(argv[own]) != "--") ++own;
  for (int i = own + 1; i < argc; ++i) options.program.emplace_back(argv[i]);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const std::vector<std::string> unknown = app.remaining(true); !unknown.empty()) {
    std::fprintf(
        stderr,
        "railyard: unknown argument %s; see railyard --help, run --help and explain --help\n",
        unknown.front().c_str());
    return 2;
  }
  if (run->parsed()) return railyard::command::run(options);
  if (explain->parsed()) return railyard::command::explain(explained);
  std::fputs(app.help().c_str(), stderr);
  return 2;
}
