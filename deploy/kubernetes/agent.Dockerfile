# The agent, for the Deployment of agent.yaml: the program, the certificate authorities that it
# trusts, and nothing else. It writes to its state directory only, which is a volume. Built from
# the root of the repository, with .git in it, by which the version is known:
#
#   docker build -t registry.example.org/proxyfleet-agent -f deploy/kubernetes/agent.Dockerfile .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -o /out/proxyfleet-agent ./cmd/agent

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/proxyfleet-agent /usr/bin/proxyfleet-agent
USER 10001:10001
ENTRYPOINT ["/usr/bin/proxyfleet-agent"]
