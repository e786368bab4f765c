#!/bin/sh
# An authority of this stack's own in /tls, and certificates of it for the router and the HTTP shim. What is good for 30 days
# more is kept, unless --renew is given. Files are replaced in one piece; services read them again without a restart.
set -eu
cd /tls
umask 077 # the authority's key is for this script alone
staging=$(mktemp -d ./.new-XXXXXX)
trap 'rm -rf "$staging"' EXIT

good() { # FILE
  [ -s "$1" ] && openssl x509 -in "$1" -noout -checkend 2592000 >/dev/null
}

if ! good ca.pem; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Kakeya's compose stack" \
    -keyout "$staging/ca.key" -out "$staging/ca.pem" 2>/dev/null
  chmod 644 "$staging/ca.pem"
  mv "$staging/ca.key" "$staging/ca.pem" .
  set -- --renew
  echo "a new authority: ca.pem"
fi

certify() { # NAME DNS_NAMES
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
    -keyout "$staging/$1.key" -out "$staging/$1.csr" 2>/dev/null
  printf 'subjectAltName=IP:127.0.0.1,DNS:localhost%s\n' "$2" >"$staging/$1.cnf"
  openssl x509 -req -in "$staging/$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -CAserial "$staging/serial" \
    -days 90 -extfile "$staging/$1.cnf" -out "$staging/$1.pem" 2>/dev/null
  chmod 640 "$staging/$1.key" "$staging/$1.pem" # of the group that the services run with
  mv "$staging/$1.key" "$staging/$1.pem" .
  echo "a new certificate: $1.pem"
}

others=${KAKEYA_TLS_NAMES:+,$KAKEYA_TLS_NAMES}
for name in router http; do
  if [ "${1:-}" = --renew ] || ! good "$name.pem"; then
    certify "$name" ",DNS:$name,DNS:$name-2,DNS:${name}s,DNS:balancer$others"
  fi
done
