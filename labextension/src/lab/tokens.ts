/**
 * What the plugins share, and what other extensions can use: the connection to det_jupyter.
 *
 *     connection/    api, socket and models behind these interfaces; the plugin that provides them
 *     sidebar/       the panel on the left: slots, experiments, templates
 *     page/          experiment pages and comparisons in the main area; places and MIME renderer
 *     shell/         status bar, launcher, palette, menus, toolbar button, notifications, settings
 *     running/       trials and ranks in the Running panel; consoles on ranks
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type {
  IClusterNews,
  IComparisonState,
  IExperimentLine,
  IExperimentNews,
  ITrialLine,
  ITrialNews,
  IUsageNews,
  IViewNews
} from '../model/state.js';

/** Requests to the server extension; paths are below `det-jupyter/`. */
export interface IApi {
  /** Rejects with an `Error` whose message is a sentence for people. */
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: unknown): Promise<T>;
  put<T>(path: string, body: unknown): Promise<T>;
  delete<T>(path: string): Promise<T>;
}

/** What a page is connected to. */
export type LinkState =
  | 'connecting' // for the first time
  | 'up'
  | 'cut' // the server does not answer; tried again with growing pauses
  | 'no-extension' // the server does not know det-jupyter
  | 'no-master' // it was stopped
  | 'mismatch' // of versions
  | 'refused'; // the server's authorizer does not let this user see experiments

export interface ILink {
  readonly state: LinkState;
  /** A sentence that says what is wrong and what to do, with the exact command; '' when up. */
  readonly sentence: string;
  /** The command to type, which `sentence` names too; '' if there is none. */
  readonly command: string;
  /** Whether this user may change anything. */
  readonly mayWrite: boolean;
}

/** Topics of det_jupyter/contract/messages/pages.py: what they are asked with, and their news. */
export interface ITopics {
  experiments: { args: object; news: IExperimentNews };
  cluster: { args: object; news: IClusterNews };
  usage: { args: { period_s: number }; news: IUsageNews };
  experiment: { args: { experiment_id: number; chosen: number | null }; news: IViewNews };
  trials: { args: object; news: ITrialNews };
  comparison: { args: { experiment_ids: number[] }; news: IComparisonState };
}

/** The socket of this tab; every part uses it. */
export interface ISocket {
  /**
   * Follow a topic across reconnections.
   *
   * @param onNews - Called with each news; those of states come whole after a reconnection.
   * @param onError - Called when the topic is over, with a sentence (such as: was deleted).
   */
  follow<K extends keyof ITopics>(
    topic: K,
    args: ITopics[K]['args'],
    onNews: (news: ITopics[K]['news']) => void,
    onError?: (sentence: string) => void
  ): IFollowed<ITopics[K]['args']>;
  /** Ask a question of det_jupyter/front/answers/answering.py; rejects with a sentence. */
  ask<T>(experimentId: number, type: string, fields: object): Promise<T>;
}

export interface IFollowed<A> extends IDisposable {
  /** Follow with other arguments from now on. */
  change(args: A): void;
}

/** All experiments that the master knows; archived ones too. */
export interface IExperiments {
  readonly isReady: boolean;
  readonly rows: ReadonlyMap<number, IExperimentLine>;
  /** The numbers of those that have changed; `null`: all may have. */
  readonly changed: ISignal<IExperiments, readonly number[] | null>;
}

export interface IClusterModel {
  readonly news: IClusterNews | null;
  readonly changed: ISignal<IClusterModel, IClusterNews>;
}

/** What the user can set: schema/settings.json says what each is for. */
export interface ISettingValues {
  notifyEnded: 'never' | 'failed' | 'always';
  notifyBest: boolean;
  showStatusBar: boolean;
  showNotebookButton: boolean;
  liveOutputs: boolean; // outputs of saved notebooks are drawn live from the server
  openBeside: boolean; // pages open beside the notebook
  usagePeriod: number; // seconds between samples of slots in the sidebar
  updateWhenHidden: boolean;
  sortBy: 'newest' | 'oldest' | 'name' | 'metric';
  showArchived: boolean;
  confirmKill: boolean;
  newCell: string; // the configuration that an empty cell begins with
}

export interface ILabSettings {
  /** The default until the settings are read. */
  get<K extends keyof ISettingValues>(key: K): ISettingValues[K];
  set<K extends keyof ISettingValues>(key: K, value: ISettingValues[K]): Promise<void>;
  readonly changed: ISignal<ILabSettings, void>;
}

/** The connection that all parts of the extension share. */
export interface IDetJupyter extends IDisposable {
  readonly api: IApi;
  readonly socket: ISocket;
  readonly settings: ILabSettings;
  readonly trans: TranslationBundle;
  readonly link: ILink;
  readonly linkChanged: ISignal<IDetJupyter, ILink>;
  /** Ask again at once. */
  retry(): void;
  readonly experiments: IExperiments;
  readonly cluster: IClusterModel;
  /** Trials that hold slots; followed while somebody is connected to it. */
  followTrials(onNews: (trials: readonly ITrialLine[]) => void): IDisposable;
}

export const IDetJupyter = new Token<IDetJupyter>(
  'det-jupyter:IDetJupyter',
  'Experiments, slots and logs of det_jupyter, live, and requests to change them.'
);

/**
 * Whatever shows an experiment (a row, a slot, a trial) carries its number in this attribute: the
 * context menu of schema/commands.json appears on it. A trial's number goes into `data-det-trial`.
 */
export const EXPERIMENT_ATTRIBUTE = 'data-det-experiment';
export const TRIAL_ATTRIBUTE = 'data-det-trial';
/** On a slot: its agent's id, a space, and its number. */
export const SLOT_ATTRIBUTE = 'data-det-slot';
/** On a list of experiments: the numbers of those that are selected, with spaces between. */
export const SELECTED_ATTRIBUTE = 'data-det-selected';

/** Commands; each takes what its `describedBy` says. Those of other rooms are called by id. */
export const Commands = {
  openExperiment: 'det:open-experiment', // {experiment_id, tab?, trial_id?}       page/
  compare: 'det:compare-experiments', // {experiment_ids}                          page/
  command: 'det:change-experiment', // {experiment_ids, verb}: pause, activate, cancel, kill, archive, unarchive, delete   shell/
  labelExperiment: 'det:label-experiment', // {experiment_ids, labels?}; asks for them if not given    shell/
  renameExperiment: 'det:rename-experiment', // {experiment_id, name?}; asks for it if not given    shell/
  continueExperiment: 'det:continue-experiment', // {experiment_id}               shell/
  forkExperiment: 'det:fork-experiment', // {experiment_id}                        shell/
  exportExperiment: 'det:export-experiment', // {experiment_id}                    shell/
  copyExperimentId: 'det:copy-experiment-id', // {experiment_ids}                  shell/
  switchSlot: 'det:switch-slot', // {agent_id, slot_id, enabled, drain?}           shell/
  openSettings: 'det:open-settings', //                                            shell/
  showSidebar: 'det:show-sidebar', //                                              sidebar/
  startMaster: 'det:start-master', //                                              shell/
  runCell: 'det:run-cell-as-experiment', //                                        shell/
  openLogs: 'det:open-logs', // {experiment_id, trial_id?, rank?}                   page/
  showStacks: 'det:show-stacks', // {trial_id, rank?}                               running/
  openConsole: 'det:open-rank-console' // {trial_id, rank}                          running/
} as const;

/** Those that are in the palette, for the experiment in front. */
export const OF_EXPERIMENTS = [
  Commands.renameExperiment,
  Commands.labelExperiment,
  Commands.continueExperiment,
  Commands.forkExperiment,
  Commands.exportExperiment,
  Commands.copyExperimentId
] as const;
