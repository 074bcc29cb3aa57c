// The programs of a Kubernetes control plane as one binary, for closeby's tests against a real API server.
//
// Called by the name of a program (a symbolic link), or with that name as the first argument, it is that program:
// etcd, kube-apiserver, kube-controller-manager or kube-scheduler, with all of its own flags.
//
// With CLOSEBY_STOP_WITH_STDIN set it stops when its standard input ends, so that nothing is left running when the
// process that holds the other end is killed.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Only the chosen program is made: each sets up signals, metrics and feature gates for a process it has to itself.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
}

func command(create func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(create())) }
}

func main() {
	program, known := programs[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		program, known = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if !known {
		names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
		fmt.Fprintf(os.Stderr, "name the program to be: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	if os.Getenv("CLOSEBY_STOP_WITH_STDIN") != "" {
		go stopWithStdin()
	}
	program()
}

// An API server that lost its etcd in the same moment can't end in order; it is not waited for for long.
func stopWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	time.Sleep(10 * time.Second)
	os.Exit(1)
}
