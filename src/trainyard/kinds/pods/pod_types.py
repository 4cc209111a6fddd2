"""The types below a PodSpec, as Kubernetes 1.37.1 has them. Written by `python -m tools.generate_pod_types`.

One type a line: its name, then `field:type` for each field, with a `!` where it is required. [T] is a list of T, {T}
a map of T, and `any` is of any type.
"""

KUBERNETES = "1.37.1"
TYPES = """
AWSElasticBlockStoreVolumeSource fsType:string partition:integer readOnly:boolean volumeID!:string
Affinity nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile localhostProfile:string type!:string
AzureDiskVolumeSource cachingMode:string diskName!:string diskURI!:string fsType:string kind:string readOnly:boolean
AzureFileVolumeSource readOnly:boolean secretName!:string shareName!:string
CSIVolumeSource driver!:string fsType:string nodePublishSecretRef:LocalObjectReference readOnly:boolean
    volumeAttributes:{string}
Capabilities add:[string] drop:[string]
CephFSVolumeSource monitors!:[string] path:string readOnly:boolean secretFile:string secretRef:LocalObjectReference
    user:string
CinderVolumeSource fsType:string readOnly:boolean secretRef:LocalObjectReference volumeID!:string
ClusterTrustBundleProjection labelSelector:LabelSelector name:string optional:boolean path!:string signerName:string
    user:integer
ConfigMapEnvSource name:string optional:boolean
ConfigMapKeySelector key!:string name:string optional:boolean
ConfigMapProjection items:[KeyToPath] name:string optional:boolean
ConfigMapVolumeSource defaultMode:integer defaultUser:integer items:[KeyToPath] name:string optional:boolean
Container args:[string] command:[string] env:[EnvVar] envFrom:[EnvFromSource] image:string imagePullPolicy:string
    lifecycle:Lifecycle livenessProbe:Probe name!:string ports:[ContainerPort] readinessProbe:Probe
    resizePolicy:[ContainerResizePolicy] resources:ResourceRequirements restartPolicy:string
    restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext startupProbe:Probe stdin:boolean
    stdinOnce:boolean terminationMessagePath:string terminationMessagePolicy:string tty:boolean
    volumeDevices:[VolumeDevice] volumeMounts:[VolumeMount] workingDir:string
ContainerPort containerPort!:integer hostIP:string hostPort:integer name:string protocol:string
ContainerResizePolicy resourceName!:string restartPolicy!:string
ContainerRestartRule action!:string exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes operator!:string values:[integer]
DownwardAPIProjection items:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile fieldRef:ObjectFieldSelector mode:integer path!:string resourceFieldRef:ResourceFieldSelector
    user:integer
DownwardAPIVolumeSource defaultMode:integer defaultUser:integer items:[DownwardAPIVolumeFile]
EmptyDirVolumeSource medium:string mode:integer sizeLimit:any
EnvFromSource configMapRef:ConfigMapEnvSource prefix:string secretRef:SecretEnvSource
EnvVar name!:string value:string valueFrom:EnvVarSource
EnvVarSource configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
    resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralVolumeSource volumeClaimTemplate:PersistentVolumeClaimTemplate
EvictionResponder name:string priority:integer
ExecAction command:[string]
FCVolumeSource fsType:string lun:integer readOnly:boolean targetWWNs:[string] wwids:[string]
FileKeySelector key!:string optional:boolean path!:string volumeName!:string
FlexVolumeSource driver!:string fsType:string options:{string} readOnly:boolean secretRef:LocalObjectReference
FlockerVolumeSource datasetName:string datasetUUID:string
GCEPersistentDiskVolumeSource fsType:string partition:integer pdName!:string readOnly:boolean
GRPCAction mode:string port!:integer service:string
GitRepoVolumeSource directory:string repository!:string revision:string
GlusterfsVolumeSource endpoints!:string path!:string readOnly:boolean
HTTPGetAction host:string httpHeaders:[HTTPHeader] path:string port!:int-or-string protocol:string scheme:string
HTTPHeader name!:string value:string
HostAlias hostnames:[string] ip!:string
HostPathVolumeSource path!:string type:string
ISCSIVolumeSource chapAuthDiscovery:boolean chapAuthSession:boolean fsType:string initiatorName:string iqn!:string
    iscsiInterface:string lun:integer portals:[string] readOnly:boolean secretRef:LocalObjectReference
    targetPortal!:string
ImageVolumeSource pullPolicy:string reference:string
KeyToPath key!:string mode:integer path!:string user:integer
LabelSelector matchExpressions:[LabelSelectorRequirement] matchLabels:{string}
LabelSelectorRequirement key!:string operator!:string values:[string]
Lifecycle postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:string
LifecycleHandler exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LocalObjectReference name:string
NFSVolumeSource path!:string readOnly:boolean server!:string
NodeAffinity preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
    requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeSelector nodeSelectorTerms!:[NodeSelectorTerm]
NodeSelectorRequirement key!:string operator!:string values:[string]
NodeSelectorTerm matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]
ObjectFieldSelector apiVersion:string fieldPath!:string
PersistentVolumeClaimSpec accessModes:[string] dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
    resources:VolumeResourceRequirements selector:LabelSelector storageClassName:string
    volumeAttributesClassName:string volumeMode:string volumeName:string
PersistentVolumeClaimTemplate metadata:{any} spec!:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource claimName!:string readOnly:boolean
PhotonPersistentDiskVolumeSource fsType:string pdID!:string
PodAffinity preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodAffinityTerm labelSelector:LabelSelector matchLabelKeys:[string] mismatchLabelKeys:[string]
    namespaceSelector:LabelSelector namespaces:[string] topologyKey!:string
PodAntiAffinity preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodCertificateProjection certificateChainPath:string credentialBundlePath:string keyPath:string keyType!:string
    maxExpirationSeconds:integer signerName!:string user:integer userAnnotations:{string}
PodDNSConfig nameservers:[string] options:[PodDNSConfigOption] searches:[string]
PodDNSConfigOption name:string value:string
PodOS name!:string
PodReadinessGate conditionType!:string
PodResourceClaim name!:string resourceClaimName:string resourceClaimTemplateName:string
PodSchedulingGate name!:string
PodSchedulingGroup podGroupName:string
PodSecurityContext appArmorProfile:AppArmorProfile fsGroup:integer fsGroupChangePolicy:string runAsGroup:integer
    runAsNonRoot:boolean runAsUser:integer seLinuxChangePolicy:string seLinuxOptions:SELinuxOptions
    seccompProfile:SeccompProfile supplementalGroups:[integer] supplementalGroupsPolicy:string sysctls:[Sysctl]
    windowsOptions:WindowsSecurityContextOptions
PodSpec activeDeadlineSeconds:integer affinity:Affinity automountServiceAccountToken:boolean containers:[Container]
    dnsConfig:PodDNSConfig dnsPolicy:string enableServiceLinks:boolean ephemeralContainers:[{any}]
    evictionResponders:[EvictionResponder] hostAliases:[HostAlias] hostIPC:boolean hostNetwork:boolean hostPID:boolean
    hostUsers:boolean hostname:string hostnameOverride:string imagePullSecrets:[LocalObjectReference]
    initContainers:[Container] nodeName:string nodeSelector:{string} os:PodOS overhead:{any} preemptionPolicy:string
    priority:integer priorityClassName:string readinessGates:[PodReadinessGate] resourceClaims:[PodResourceClaim]
    resources:ResourceRequirements restartPolicy:string runtimeClassName:string schedulerName:string
    schedulingGates:[PodSchedulingGate] schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext
    serviceAccount:string serviceAccountName:string setHostnameAsFQDN:boolean shareProcessNamespace:boolean
    subdomain:string terminationGracePeriodSeconds:integer tolerations:[Toleration]
    topologySpreadConstraints:[TopologySpreadConstraint] volumes:[Volume]
PortworxVolumeSource fsType:string readOnly:boolean volumeID!:string
PreferredSchedulingTerm preference:NodeSelectorTerm weight!:integer
Probe exec:ExecAction failureThreshold:integer grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds:integer
    periodSeconds:integer successThreshold:integer tcpSocket:TCPSocketAction terminationGracePeriodSeconds:integer
    timeoutSeconds:integer
ProjectedVolumeSource defaultMode:integer defaultUser:integer sources:[VolumeProjection]
QuobyteVolumeSource group:string readOnly:boolean registry!:string tenant:string user:string volume!:string
RBDVolumeSource fsType:string image!:string keyring:string monitors!:[string] pool:string readOnly:boolean
    secretRef:LocalObjectReference user:string
ResourceClaim name!:string request:string
ResourceFieldSelector containerName:string divisor:any resource!:string
ResourceRequirements claims:[ResourceClaim] limits:{any} requests:{any}
SELinuxOptions level:string role:string type:string user:string
ScaleIOVolumeSource fsType:string gateway!:string protectionDomain:string readOnly:boolean
    secretRef:LocalObjectReference sslEnabled:boolean storageMode:string storagePool:string system!:string
    volumeName:string
SeccompProfile localhostProfile:string type!:string
SecretEnvSource name:string optional:boolean
SecretKeySelector key!:string name:string optional:boolean
SecretProjection items:[KeyToPath] name:string optional:boolean
SecretVolumeSource defaultMode:integer defaultUser:integer items:[KeyToPath] optional:boolean secretName:string
SecurityContext allowPrivilegeEscalation:boolean appArmorProfile:AppArmorProfile capabilities:Capabilities
    privileged:boolean procMount:string readOnlyRootFilesystem:boolean runAsGroup:integer runAsNonRoot:boolean
    runAsUser:integer seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile
    windowsOptions:WindowsSecurityContextOptions
ServiceAccountTokenProjection audience:string expirationSeconds:integer path!:string user:integer
SleepAction seconds:integer
StorageOSVolumeSource fsType:string readOnly:boolean secretRef:LocalObjectReference volumeName:string
    volumeNamespace:string
Sysctl name!:string value:string
TCPSocketAction host:string port!:int-or-string
Toleration effect:string key:string operator:string tolerationSeconds:integer value:string
TopologySpreadConstraint labelSelector:LabelSelector matchLabelKeys:[string] maxSkew!:integer minDomains:integer
    nodeAffinityPolicy:string nodeTaintsPolicy:string topologyKey!:string whenUnsatisfiable!:string
TypedLocalObjectReference apiGroup:string kind!:string name!:string
TypedObjectReference apiGroup:string kind!:string name!:string namespace:string
Volume awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
    azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource
    configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource
    emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource flexVolume:FlexVolumeSource
    flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource
    glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource
    name!:string nfs:NFSVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource
    projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource scaleIO:ScaleIOVolumeSource
    secret:SecretVolumeSource storageos:StorageOSVolumeSource vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeDevice devicePath!:string name!:string
VolumeMount bindMountOptions:[string] mountPath!:string mountPropagation:string name!:string readOnly:boolean
    recursiveReadOnly:string subPath:string subPathExpr:string
VolumeProjection clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection
    downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection secret:SecretProjection
    serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements limits:{any} requests:{any}
VsphereVirtualDiskVolumeSource fsType:string storagePolicyID:string storagePolicyName:string volumePath!:string
WeightedPodAffinityTerm podAffinityTerm!:PodAffinityTerm weight!:integer
WindowsSecurityContextOptions gmsaCredentialSpec:string gmsaCredentialSpecName:string hostProcess:boolean
    runAsUserName:string
"""
