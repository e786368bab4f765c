/* Preloaded into the processes of a chaos run: writes into one directory fail or hang while a control file says so.
   There is no other way to fill one directory's disk without a file system of its own, which takes root to mount. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const useconds_t SLOW_MICROSECONDS = 300000;

/* What the control file says now ('f': full, 's': slow), if `fd` is a file in the directory; 0 otherwise. */
static char fault_of(int fd) {
  const char *control = getenv("KAKEYA_CHAOS_DISK_CONTROL"), *directory = getenv("KAKEYA_CHAOS_DISK");
  if (!control || !directory) return 0;
  char mode = 0;
  int control_fd = open(control, O_RDONLY | O_CLOEXEC);
  if (control_fd < 0) return 0;
  ssize_t num_read = read(control_fd, &mode, 1);
  close(control_fd);
  if (num_read != 1) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, directory, strlen(directory)) ? 0 : mode;
}

ssize_t write(int fd, const void *content, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "write");
  char fault = fault_of(fd);
  if (fault == 'f') {
    errno = ENOSPC;
    return -1;
  }
  if (fault == 's') usleep(SLOW_MICROSECONDS);
  return real(fd, content, size);
}

int fsync(int fd) {
  static int (*real)(int);
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
  if (fault_of(fd) == 's') usleep(SLOW_MICROSECONDS);
  return real(fd);
}
