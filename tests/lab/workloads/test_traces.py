"""Traces are read as they were written; what is wrong is said with its line, field and remedy."""

import gzip
import time
from pathlib import Path

import pytest

from closeby.lab.workloads.generating import generate
from closeby.lab.workloads.traces import Trace, read_trace, write_trace
from tests.golden.fixture import Golden

HEADER = "name,submitted,duration,pods,gpus,priority,kind\n"


def read(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return read_trace(path, "trace.csv")


def faults(tmp_path: Path, text: str) -> list[str]:
    trace = read(tmp_path, text)
    assert trace.jobs is None
    return [str(fault) for fault in trace.faults]


def test_a_written_trace_is_read_as_it_was(tmp_path: Path) -> None:
    jobs = generate("seren", jobs=300, load=0.85, capacity=6776, seed=1)
    write_trace(tmp_path / "trace.csv", jobs)
    trace = read_trace(tmp_path / "trace.csv")
    assert trace.jobs is not None and trace.faults == () and trace.notices == ()
    for field in ("submitted", "durations", "pods", "gpus", "priorities"):
        assert (getattr(trace.jobs, field) == getattr(jobs, field)).all()
    assert (trace.jobs.names, trace.jobs.kinds) == (jobs.names, jobs.kinds)


def test_jobs_are_put_in_order_and_other_columns_left_aside(tmp_path: Path, golden: Golden) -> None:
    trace = read(
        tmp_path, "user,pods,name,gpus,submitted,duration\nu1,4,late,8,60,3.5\n\nu2,1,early,1,10.5,60\n"
    )
    assert trace.jobs is not None
    golden("replay", trace.notices)
    assert trace.jobs.names == ("early", "late")
    assert trace.jobs.submitted.tolist() == [10.5, 60.0]
    assert trace.jobs.sizes.tolist() == [1, 32]
    assert trace.jobs.priorities.tolist() == [0, 0]
    assert trace.jobs.kinds == ("", "")


def test_acme_traces_are_read_as_published(tmp_path: Path, golden: Golden) -> None:
    """Columns of trace_seren.csv; jobs without GPUs are left out."""
    trace = read(
        tmp_path,
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "102,u1,3,20,128,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,936.0\n"
        "103,u1,1,0,16,Eval,COMPLETED,2023-03-01 00:18:22+08:00,,,10,0,0\n"
        "101,u2,1,4,64,Pretrain,COMPLETED,2023-02-28 16:18:20+00:00,,,2693,13,10772.0\n",
    )
    assert trace.jobs is not None
    assert trace.jobs.names == ("101", "102")
    assert trace.jobs.submitted.tolist() == [0.0, 2.0]
    assert (trace.jobs.pods.tolist(), trace.jobs.gpus.tolist()) == ([1, 3], [4, 7])
    assert trace.jobs.kinds == ("pretrain", "other")
    golden("replay", trace.notices[1])


ACME_HEADER = "job_id,submit_time,duration,gpu_num\n"


@pytest.mark.parametrize(
    ("asked", "pods", "each"),
    [(1, 1, 1), (5, 1, 5), (8, 1, 8), (10, 2, 5), (12, 2, 6), (16, 2, 8), (18, 3, 6), (1024, 128, 8)],
)
def test_jobs_of_acme_keep_their_gpus(tmp_path: Path, asked: int, pods: int, each: int) -> None:
    trace = read(tmp_path, f"{ACME_HEADER}a,2023-03-01,60,{asked}\n")
    assert trace.jobs is not None
    assert (trace.jobs.pods.tolist(), trace.jobs.gpus.tolist()) == ([pods], [each])
    assert trace.notices == ()


def test_a_job_of_acme_that_gets_more_gpus_than_it_asks_for_is_reported(tmp_path: Path) -> None:
    """13 are no two equal pods of at most 8, so two of 7; 20 are three of 7."""
    trace = read(tmp_path, f"{ACME_HEADER}a,2023-03-01,60,12\nb,2023-03-01,60,13\n")
    assert trace.jobs is not None and trace.jobs.sizes.tolist() == [12, 14]
    uneven = "for GPUs that can't be shared out evenly over hosts, such as b (13, taken as 2 x 7)"
    assert trace.notices == (f"1 job asks {uneven}: 1 GPU more in all",)
    more = read(tmp_path, f"{ACME_HEADER}b,2023-03-01,60,13\nc,2023-03-01,60,20\nd,2023-03-01,60,22\n")
    assert more.notices == (f"3 jobs ask {uneven}: 4 GPUs more in all",)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "a,x,1,1,1,0,",
            "trace.csv:3: submitted: 'x' is not a time; write seconds, 0 or more, like 90 or 1.5",
        ),
        (
            "a,1,-1,1,1,0,",
            "trace.csv:3: duration: '-1' is not a time; write seconds, 0 or more, like 90 or 1.5",
        ),
        (
            "a,1,nan,1,1,0,",
            "trace.csv:3: duration: 'nan' is not a time; write seconds, 0 or more, like 90 or 1.5",
        ),
        ("a,1,1,0,1,0,", "trace.csv:3: pods: '0' is not a number of 1 to 1000000; write a whole number"),
        ("a,1,1,1,1.5,0,", "trace.csv:3: gpus: '1.5' is not a number of 0 to 1000000; write a whole number"),
        ("a,1,1,1,1,high,", "trace.csv:3: priority: 'high' is not a number of"),
        ("A_b,1,1,1,1,0,", "trace.csv:3: name: 'A_b' is not a name; write up to 52 of a-z, 0-9 and -"),
        ("first,1,1,1,1,0,", "trace.csv:3: name: first is the job of line 2 too; rename one"),
        ("a,1,1,1", "trace.csv:3: has 4 fields, but the header 7; leave no column out"),
        ("a,1,1,1,1,0,,", "trace.csv:3: has 8 fields, but the header 7; quote commas"),
        ("a", "trace.csv:3: has 1 field, but the header 7"),
        ("a,1_0,1,1,1,0,", "trace.csv:3: submitted: '1_0' is not a time"),
        ("a,1,1,1_0,1,0,", "trace.csv:3: pods: '1_0' is not a number"),
        ("a,1,1,\u0661,1,0,", "trace.csv:3: pods: '\u0661' is not a number"),
        (
            "a,1700000000000,1,1,1,0,",
            "trace.csv:3: submitted: '1700000000000' is more than 3,000 years; write seconds",
        ),
        ("a,1,1e300,1,1,0,", "trace.csv:3: duration: '1e300' is more than 3,000 years"),
        ('a,"1"x,1,1,1,0,', "trace.csv:3: is not CSV: "),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, row: str, said: str) -> None:
    (found,) = faults(tmp_path, f"{HEADER}first,0,1,1,1,0,\n{row}\n")
    assert found.startswith(said)


def test_all_faults_are_named_but_not_without_end(tmp_path: Path, golden: Golden) -> None:
    assert len(faults(tmp_path, HEADER + "a,x,1,1,1,0,\nb,1,y,1,1,0,\n")) == 2
    many = faults(tmp_path, HEADER + "a,x,1,1,1,0,\n" * 1000)
    assert len(many) == 21
    golden("replay", many[-1])


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    """A quoted field of two lines, and lines with nothing but blanks."""
    (found,) = faults(tmp_path, HEADER + 'a,0,1,1,1,0,"two\nlines"\n  \n\nb,x,1,1,1,0,\n')
    assert found.startswith("trace.csv:6: submitted: 'x'")


def test_spreadsheets_leave_empty_columns_and_blanks(tmp_path: Path) -> None:
    trace = read(tmp_path, "name,submitted,duration,pods,gpus,priority,,\na, 0, 1, 1, 1, ,,\n")
    assert trace.jobs is not None and trace.jobs.priorities.tolist() == [0]
    assert trace.notices == ()


@pytest.mark.parametrize("times", [("1700000000", "1700000060"), ("0", "60")])
def test_seconds_since_1970_begin_with_the_first_job(tmp_path: Path, times: tuple[str, str]) -> None:
    trace = read(tmp_path, f"{HEADER}a,{times[0]},1,1,1,0,\nb,{times[1]},1,1,1,0,\n")
    assert trace.jobs is not None and trace.jobs.submitted.tolist() == [0.0, 60.0]


def test_dates_without_a_zone_are_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Berlin there was no half past two on that day; the first date is before 1970."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        trace = read(
            tmp_path,
            "job_id,submit_time,duration,gpu_num\na,1969-12-31 00:00:00,1,1\nb,1970-01-01 00:00:00,1,1\n"
            "c,2023-03-26 01:30:00,1,1\nd,2023-03-26 03:30:00,1,1\n",
        )
    finally:
        monkeypatch.undo()
        time.tzset()
    assert trace.jobs is not None
    first, second, third, fourth = trace.jobs.submitted.tolist()
    assert (first, second, fourth - third) == (0.0, 86_400.0, 7_200.0)


def test_files_that_are_no_trace_are_refused(tmp_path: Path, golden: Golden) -> None:
    (lacking,) = faults(tmp_path, "")
    begin = "begin the file with name,submitted,duration,pods,gpus,priority,kind"
    assert lacking == f"trace.csv:1: has no header; {begin}"
    assert faults(tmp_path, "name,gpus\n") == [f"trace.csv:1: lacks submitted, duration, pods; {begin}"]
    golden("replay", faults(tmp_path, HEADER))
    assert faults(tmp_path, 'name,"submitted\n')[0].startswith("trace.csv:1: is not CSV: ")
    assert "is not CSV: field larger" in faults(tmp_path, "n" * 200_000 + ",duration\n")[0]
    (separated,) = faults(tmp_path, "name;submitted;duration;pods;gpus\na;0;1;1;1\n")
    assert "separate columns by commas" in separated
    golden("replay", faults(tmp_path, "name,name\n"))
    assert "No such file" in read_trace(tmp_path / "none.csv").faults[0].message
    assert "Is a directory" in read_trace(tmp_path).faults[0].message


def test_bytes_that_are_no_text_are_found_by_their_line(tmp_path: Path, golden: Golden) -> None:
    """The last line is far behind the first ones that are decoded."""
    path = tmp_path / "trace.csv"
    rows = "".join(f"j{number},0,1,1,1,0,\n" for number in range(5_000))
    path.write_bytes(f"{HEADER}{rows}".encode() + b"caf\xe9,0,1,1,1,0,\n")
    (fault,) = read_trace(path, "trace.csv").faults
    golden("replay", str(fault))
    path.write_bytes(HEADER.encode("utf-16"))
    assert read_trace(path).faults[0].line == 1


def test_a_compressed_trace_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    packed = gzip.compress(f"{HEADER}a,0,1,1,1,0,\n".encode())
    path.write_bytes(packed)
    trace = read_trace(path)
    assert trace.jobs is not None
    assert trace.jobs.names == ("a",)
    path.write_bytes(packed[:-9])
    (fault,) = read_trace(path).faults
    assert fault.message.startswith("is compressed, and can't be unpacked")
    path.write_bytes(gzip.compress(f"{HEADER}caf".encode() + b"\xe9,0,1,1,1,0,\n"))
    assert read_trace(path).faults[0].line == 2
