// Times Kueue's own search for the places of one pod set: on a snapshot that is built already, as often as asked.
// It is compiled inside a copy of Kueue's package, since what it calls is not public.
package scheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/resources"
	utiltas "sigs.k8s.io/kueue/pkg/util/tas"
)

type machine struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	// Used is in the units of Capacity: thousandths of a CPU, else the thing itself.
	Used map[corev1.ResourceName]int64 `json:"used"`
}

type question struct {
	Case    string                       `json:"case"`
	Count   int32                        `json:"count"`
	Request *kueue.PodSetTopologyRequest `json:"request"`
}

type given struct {
	Levels    []string                      `json:"levels"`
	Capacity  map[corev1.ResourceName]int64 `json:"capacity"`
	Pod       map[corev1.ResourceName]int64 `json:"pod"`
	Machines  []machine                     `json:"machines"`
	Questions []question                    `json:"questions"`
	Runs      int                           `json:"runs"`
}

type answer struct {
	Case    string    `json:"case"`
	CPU     []float64 `json:"cpu"`
	Wall    []float64 `json:"wall"`
	Placed  int       `json:"placed"`
	Failure string    `json:"failure"`
	// Domains of each level but the last that were used.
	Domains map[string]int `json:"domains"`
}

func seconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func quantity(name corev1.ResourceName, amount int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

func TestSearch(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("SEARCH_INPUT"))
	if err != nil {
		t.Fatal(err)
	}
	var all given
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	cache := NewTASCache(nil, newDefaultSimulator(), resources.NewResourceFormatter())
	for _, one := range all.Machines {
		allocatable := corev1.ResourceList{}
		for name, amount := range all.Capacity {
			allocatable[name] = quantity(name, amount)
		}
		cache.SyncNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: one.Name, Labels: one.Labels},
			Status: corev1.NodeStatus{
				Allocatable: allocatable,
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	flavor := cache.NewTASFlavorCache(
		topologyInformation{Levels: all.Levels}, flavorInformation{TopologyName: "network"},
	)
	snapshot, err := flavor.snapshot(t.Context(), logr.Discard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all.Machines {
		if len(one.Used) > 0 {
			snapshot.addTASUsage(utiltas.TopologyDomainID(one.Name), resources.NewRequestsFromMap(one.Used))
		}
	}
	labels := map[string]map[string]string{}
	for _, one := range all.Machines {
		labels[one.Name] = one.Labels
	}
	quiet := logr.NewContext(t.Context(), logr.Discard())
	encoder := json.NewEncoder(os.Stdout)
	for _, asked := range all.Questions {
		requests := FlavorTASRequests{{
			PodSet: &kueue.PodSet{
				Name: "main", Count: asked.Count, TopologyRequest: asked.Request,
			},
			SinglePodRequests: resources.NewRequestsFromMap(all.Pod),
			Count:             asked.Count,
		}}
		said := answer{Case: asked.Case, Domains: map[string]int{}}
		// Not before each run, which would begin with cold caches.
		runtime.GC()
		for range all.Runs {
			cpu, wall := seconds(), time.Now()
			result := snapshot.FindTopologyAssignmentsForFlavor(quiet, requests)
			said.Wall = append(said.Wall, time.Since(wall).Seconds())
			said.CPU = append(said.CPU, seconds()-cpu)
			said.Placed = 0
			if failure := result.Failure(); failure != nil {
				said.Failure = failure.Reason
				continue
			}
			used := map[string]bool{}
			for _, domain := range result["main"].TopologyAssignment.Domains {
				said.Placed += int(domain.Count)
				host := domain.Values[len(domain.Values)-1]
				for _, level := range all.Levels {
					used[level+"/"+labels[host][level]] = true
				}
			}
			said.Domains = map[string]int{}
			for key := range used {
				for _, level := range all.Levels {
					if len(key) > len(level) && key[:len(level)+1] == level+"/" {
						said.Domains[level]++
					}
				}
			}
		}
		fmt.Print("SEARCH ")
		if err := encoder.Encode(said); err != nil {
			t.Fatal(err)
		}
	}
}
