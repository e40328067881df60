/** What the server answers, and what parts of the page share. For the type checker alone; browsers never load it. */

type Signal<T> = import("@preact/signals-core").Signal<T>;
type ReadonlySignal<T> = import("@preact/signals-core").ReadonlySignal<T>;

type Query = Record<string, string | number | boolean | null | undefined>;

interface Route {
  path: string;
  parts: string[];
  query: Record<string, string>;
}

interface Resource<T = any> {
  state: "loading" | "ready" | "stale" | "error";
  data: T | null;
  error: { message: string; hint?: string; status?: number } | null;
  /** A newer answer is on its way. */
  busy: boolean;
  /** Milliseconds since 1970 of the answer, or since when the connection is lost. */
  since: number | null;
}

interface Empty {
  /** What would fill the panel. */
  text: any;
  /** The lines of a script that do. */
  code?: string;
  /** Or the command. */
  command?: string;
}

/** Counters: a change is a reason to ask again. */
interface Watched {
  events: Signal<number>;
  log: Signal<number>;
  system: Signal<number>;
  /** Bytes of the log of each rank that has written since. */
  grown: Signal<ReadonlyMap<number, number>>;
}

interface Row {
  name: string;
  display_name: string;
  experiment: string;
  type: string;
  status: string;
  sentence: string;
  hangs: boolean;
  created: string | null;
  started: string | null;
  ended: string | null;
  duration: number | null;
  nodes: number | null;
  processes: number | null;
  compute: string;
  attempt: number;
  most_attempts: number | null;
  metric: { name: string; value: number } | null;
  spark?: number[] | null;
  tags: Record<string, string>;
  parent: string | null;
  archived: boolean;
}

interface JobInfo {
  row: Row;
  page: any;
  verdict: any;
  hang: any;
  last_lines: { rank: number; text: string }[];
  attempts: { number: number; began: string | null; ended: string | null; kind: string; sentence: string }[];
  services: Record<string, { url?: string; endpoint?: string; type?: string }>;
  has_scale: boolean;
  has_rehearsal: boolean;
  commands: Record<string, string>;
}

/** What a tab of the job page is given. */
interface Job {
  name: string;
  /** GET /jobs/NAME. */
  info: ReadonlySignal<Resource<JobInfo>>;
  /** The attempt that the page shows, counted from 0; null: the latest. */
  attempt: ReadonlySignal<number | null>;
  /** The pointed time in milliseconds since 1970, the same in every tab; null: none. */
  time: Signal<number | null>;
  /** Counters of what the server tells of this job, for `useResource`. */
  live: Watched;
  /** GET /jobs/NAME/steps. */
  steps: ReadonlySignal<Resource<StepsAnswer>>;
  tell: (text: string, how?: { hint?: string; isBad?: boolean }) => void;
}

interface RankInfo {
  rank: number;
  node: number;
  local_rank: number;
  state: string;
  exit_code: number | null;
  signal: string | number | null;
  began: string | null;
  ended: string | null;
  pid: number | null;
  cpu: number | null;
  memory: number | null;
  gpu: number | null;
  /** Milliseconds, in the last minute. */
  lateness: number | null;
  step: number | null;
  last_line: string;
}

interface RankAnswer {
  sentence: string;
  attempt: number;
  nodes: { index: number; name: string; ranks: number[] }[];
  ranks: RankInfo[];
}

interface StepsAnswer {
  attempt: number;
  steps: { done: number | null; total: number | null; rate: number | null; step_s: number | null; looks: number | null } | null;
  progress: string;
  counted: number;
  phases: { key: string; title: string; share: number; seconds: number }[];
  sentence: string;
}

interface SystemAnswer {
  measures: { key: string; title: string; unit: string; most: number | null }[];
  measure: string;
  begin: string | number;
  end: string | number;
  bin_s: number;
  rows: { rank: number | null; node: number; label: string; values: (number | null)[] }[];
  marks: { time: string | number; kind: string; text: string }[];
}

interface Window {
  /** What first.js has asked, by address. */
  early?: Map<string, Promise<Response>>;
}
