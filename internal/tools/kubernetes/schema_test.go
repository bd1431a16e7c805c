package kubernetes_test

// The fields of Kubernetes that the manifest uses, from its reference of the API. A field that is not
// here is an error, so that a misspelled one is seen.

type meta struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type typed struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

type service struct {
	typed    `yaml:",inline"`
	Metadata meta `yaml:"metadata"`
	Spec     struct {
		ClusterIP                string            `yaml:"clusterIP"`
		PublishNotReadyAddresses bool              `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string `yaml:"selector"`
		Ports                    []struct {
			Name string `yaml:"name"`
			Port int32  `yaml:"port"`
		} `yaml:"ports"`
	} `yaml:"spec"`
}

type statefulSet struct {
	typed    `yaml:",inline"`
	Metadata meta `yaml:"metadata"`
	Spec     struct {
		ServiceName         string `yaml:"serviceName"`
		Replicas            int32  `yaml:"replicas"`
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		Selector            struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		Template struct {
			Metadata meta `yaml:"metadata"`
			Spec     struct {
				InitContainers []container `yaml:"initContainers"`
				Containers     []container `yaml:"containers"`
				Volumes        []struct {
					Name     string    `yaml:"name"`
					EmptyDir *struct{} `yaml:"emptyDir"`
				} `yaml:"volumes"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type container struct {
	Name    string     `yaml:"name"`
	Image   string     `yaml:"image"`
	Command []string   `yaml:"command"`
	Env     []variable `yaml:"env"`
	Args    []string   `yaml:"args"`
	Ports   []struct {
		Name          string `yaml:"name"`
		ContainerPort int32  `yaml:"containerPort"`
	} `yaml:"ports"`
	LivenessProbe struct {
		Exec struct {
			Command []string `yaml:"command"`
		} `yaml:"exec"`
		PeriodSeconds    int32 `yaml:"periodSeconds"`
		TimeoutSeconds   int32 `yaml:"timeoutSeconds"`
		FailureThreshold int32 `yaml:"failureThreshold"`
	} `yaml:"livenessProbe"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type variable struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}
