#include "app/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace app {

void settle_process() {
  // open() takes the lowest free number: that of the stream, once those before it are open.
  constexpr int kAccess[] = {O_RDONLY, O_RDONLY, O_WRONLY};  // of stdin, stdout, stderr
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", kAccess[stream]);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace app
