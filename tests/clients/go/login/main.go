// Logins over TLS with franz-go and amqp091-go. See ../../README.md.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"polylogue/clientcases/shared"
)

const (
	wait     = 60 * time.Second
	user     = "admin"
	password = "admin-password"
	// Whose certificate says so.
	robot = "robot"
)

// place is where the broker listens, and whom the cases trust.
type place struct {
	kafka, amqp, management string
	trusted                 *x509.CertPool
	certificate             tls.Certificate
}

var cases = []shared.Named[*place]{
	{Name: "franz_go", Run: franz},
	{Name: "franz_go_wrong_password", Run: franzWrong},
	{Name: "franz_go_certificate", Run: franzCertificate},
	{Name: "franz_go_untrusted", Run: franzUntrusted},
	{Name: "amqp091_go", Run: amqp091},
	{Name: "amqp091_go_wrong_password", Run: amqp091Wrong},
	{Name: "amqp091_go_certificate", Run: amqp091Certificate},
	{Name: "amqp091_go_untrusted", Run: amqp091Untrusted},
}

// find takes KAFKA,MANAGEMENT,KAFKA_TLS,AMQP_TLS,CA,HTTP,ROBOT apart.
func find(address string) *place {
	at := strings.Split(address, ",")
	trusted := x509.NewCertPool()
	shared.Check(trusted.AppendCertsFromPEM(shared.Must(os.ReadFile(at[4]))), "%s has no certificate", at[4])
	certificate := shared.Must(tls.LoadX509KeyPair(at[6]+".pem", at[6]+".key"))
	return &place{kafka: at[2], amqp: at[3], management: at[1], trusted: trusted, certificate: certificate}
}

// secured is TLS with who is trusted, and perhaps a certificate to show.
func (p *place) secured(shown ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: p.trusted, Certificates: shown}
}

// manage sets something by the management API.
func (p *place) manage(path, body string) {
	request := shared.Must(http.NewRequest(http.MethodPut, "http://"+p.management+"/api/"+path, bytes.NewBufferString(body)))
	request.SetBasicAuth(user, password)
	response := shared.Must((&http.Client{Timeout: wait}).Do(request))
	response.Body.Close()
	shared.Check(response.StatusCode < 300, "%s: %s", path, response.Status)
}

// untrusted says that the client did not trust whom it found.
func untrusted(err error) {
	var unknown x509.UnknownAuthorityError
	shared.Check(errors.As(err, &unknown) || err != nil && strings.Contains(fmt.Sprint(err), "unknown authority"), "it was let in, or: %v", err)
}

func main() { shared.MainNamed(cases, find, func(*place) {}) }
