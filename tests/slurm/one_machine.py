"""A SLURM of this user on one machine, in a temporary folder."""
import os
import shutil
import socket
import subprocess
import time


def search_path():
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def missing(*more):
    """A sentence if programs are missing, or an empty string."""
    packages = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"} | {name: name for name in more}
    absent = [name for name in packages if not shutil.which(name, path=search_path())]
    return f"no {', '.join(absent)} here (Debian: apt-get install {' '.join(packages[name] for name in absent)})" if absent else ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """munged, slurmctld and one slurmd per node; the partitions contain all nodes."""

    def __init__(self, folder, nodes=1, partitions=("all",)):
        self.folder, self.daemons = folder, []
        folder.chmod(0o755)  # or munge rejects its socket
        for name in ("munge", "state"):
            (folder / name).mkdir(mode=0o755)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        host, user = socket.gethostname().split(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
        names = [f"node{index}" for index in range(1, nodes + 1)]
        lines = [f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={os.cpu_count()} State=UNKNOWN"
                 for name in names]
        lines += [f"PartitionName={name} Nodes={','.join(names)} Default={'NO' if index else 'YES'} State=UP"
                  for index, name in enumerate(partitions)]
        (folder / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
MpiDefault=none
KillWait=2
""" + "\n".join(lines) + "\n")
        # Nodes with the same host name: Open MPI would search the ranks of the other node in its own shared memory, and sometimes
        # fails there.
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "OMPI_MCA_btl": "self,tcp"}
        munge = folder / "munge"
        self.start("munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                   f"--seed-file={munge}/seed", f"--log-file={munge}/log")
        self.until(lambda: (munge / "socket").exists())
        self.start("slurmctld", "-D")
        for name in names:  # each with separate files, or ranks on several nodes would share them
            for inner in ("spool", "mpi"):
                (folder / name / inner).mkdir(parents=True)
            shutil.copy(folder / "slurm.conf", folder / name)
            (folder / name / "mpi.conf").write_text(f"PMIxCliTmpDirBase={folder / name / 'mpi'}\n")
            self.start("slurmd", "-D", "-N", name, "-f", str(folder / name / "slurm.conf"))
        self.until(lambda: set(self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()) == {
            f"{name} idle" for name in names})

    def run(self, *command):
        return subprocess.run(command, env=self.environment, text=True, capture_output=True).stdout

    def start(self, name, *arguments):
        with open(self.folder / f"{name}-{len(self.daemons)}.out", "w") as log:
            self.daemons.append(subprocess.Popen([shutil.which(name, path=search_path()), *arguments], env=self.environment,
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def until(self, ready):
        for _ in range(150):
            if ready():
                return
            time.sleep(0.2)
        said = "".join(path.read_text()[-2000:] for path in self.folder.glob("*.out"))
        self.stop()
        raise RuntimeError(f"the cluster did not come up: {said}")

    def stop(self):
        self.run("scancel", "--user", str(os.getuid()))
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
