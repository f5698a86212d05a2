#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    if (address && address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in here;
        memcpy(&here, address, sizeof here);
        if (here.sin_addr.s_addr == htonl(INADDR_ANY)) {
            here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            return next(fd, (struct sockaddr *)&here, sizeof here);
        }
    }
    if (address && address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 here;
        memcpy(&here, address, sizeof here);
        if (IN6_IS_ADDR_UNSPECIFIED(&here.sin6_addr)) {
            inet_pton(AF_INET6, "::ffff:127.0.0.1", &here.sin6_addr);
            return next(fd, (struct sockaddr *)&here, sizeof here);
        }
    }
    return next(fd, address, length);
}
