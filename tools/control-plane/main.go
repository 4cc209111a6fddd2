// Every program of a Kubernetes control plane for tests in one binary. It is the program it is called as: by the name
// of the file (a symbolic link), or, called by any other name, by its first argument.
//
// One link instead of seven saves minutes and 230 MB, because the programs share most of their packages.
// What each case does is what the main function of that program does, and nothing more.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	helmkube "helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec plugins and the like in kubeconfigs
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"helm":                    runHelm,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
	"kwok":                    runKwok,
}

func main() {
	run, known := programs[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		run, known = programs[os.Args[0]]
	}
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(programs)), ", ")
		fmt.Fprintf(os.Stderr, "call this through a link, or with a first argument, that is one of: %s\n", names)
		os.Exit(2)
	}
	os.Exit(run())
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it and ends the program with the code that fits
	}
	return 0
}

// forgetFlags undoes what Kubernetes' packages add to the flags that cobra shows under every command.
func forgetFlags() {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}

func runHelm() int {
	forgetFlags()
	helmkube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err != nil {
		slog.Warn("command failed", slog.Any("error", err))
		return 1
	}
	if err := command.Execute(); err != nil {
		if coded, ok := errors.AsType[helm.CommandError](err); ok {
			return coded.ExitCode
		}
		return 1
	}
	return 0
}

func runKwok() int {
	forgetFlags()
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("The configuration cannot be read", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("KWOK ended", "err", err)
		return 1
	}
	return 0
}
