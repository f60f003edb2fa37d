/**
 * The interfaces that the plugins share and other extensions can use: the connection to det_jupyter.
 *
 *     connection/    api, socket and models behind these interfaces; the plugin that provides them
 *     sidebar/       the panel on the left: slots, experiments, models, templates
 *     page/          pages of experiments, comparisons and models; places and MIME renderer
 *     shell/         status bar, launcher, palette, menus, toolbar button, notifications, settings
 *     running/       trials and ranks in the Running panel; consoles on ranks
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type {
  IClusterState,
  IComparisonState,
  IExperimentRow,
  IExperimentList,
  IModelList,
  IModelState,
  ITrialLine,
  ITrialList,
  IUsage,
  IViewState
} from '../model/state.js';

/** Requests to the server extension; paths are below `det-jupyter/`. */
export interface IApi {
  /** Rejects with an `Error` whose message is for the user. */
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: unknown): Promise<T>;
  put<T>(path: string, body: unknown): Promise<T>;
  delete<T>(path: string): Promise<T>;
}

/** The state of the connection. */
export type LinkState =
  | 'connecting' // for the first time
  | 'up'
  | 'cut' // the server does not answer; retried with growing pauses
  | 'no-extension' // the server lacks the extension
  | 'no-master' // the master was stopped, or never started
  | 'mismatch' // page and server have different protocol versions
  | 'refused'; // the server's authorizer does not let this user see experiments

export interface ILink {
  readonly state: LinkState;
  /** The problem and what to do, with the exact command; '' when up. */
  readonly sentence: string;
  /** The command to type, which `sentence` contains too; '' if there is none. */
  readonly command: string;
  /** Whether this user may change anything. */
  readonly mayWrite: boolean;
}

/** Documents of det_jupyter/contract/messages/pages.py, and their arguments. */
export interface IDocuments {
  experiments: { args: object; document: IExperimentList };
  cluster: { args: object; document: IClusterState };
  usage: { args: { period_s: number }; document: IUsage };
  experiment: { args: { experiment_id: number; chosen: number | null }; document: IViewState };
  trials: { args: object; document: ITrialList };
  comparison: { args: { experiment_ids: number[] }; document: IComparisonState };
  models: { args: object; document: IModelList };
  model: { args: { id: number }; document: IModelState };
}

/** The socket of this browser tab, shared by all parts. */
export interface ISocket {
  /**
   * Follow a document across reconnections.
   *
   * @param onVersion - Called with each version; parts that have not changed are the same objects.
   * @param onError - Called with a sentence when no more come (such as: was deleted).
   */
  follow<K extends keyof IDocuments>(
    name: K,
    args: IDocuments[K]['args'],
    onVersion: (document: IDocuments[K]['document']) => void,
    onError?: (sentence: string) => void
  ): IFollowed<IDocuments[K]['args']>;
  /** Send a question of det_jupyter/client/answers/answering.py; rejects with a sentence. */
  ask<T>(experimentId: number, type: string, fields: object): Promise<T>;
}

export interface IFollowed<A> extends IDisposable {
  /** Follow with other arguments from now on. */
  change(args: A): void;
}

/** All experiments of the master, including archived ones. */
export interface IExperiments {
  readonly isReady: boolean;
  readonly rows: ReadonlyMap<number, IExperimentRow>;
  /** Emitted with the ids of changed experiments; `null`: all may have changed. */
  readonly changed: ISignal<IExperiments, readonly number[] | null>;
}

export interface IClusterModel {
  readonly state: IClusterState | null;
  readonly changed: ISignal<IClusterModel, IClusterState>;
}

/** The user's settings; schema/settings.json describes them. */
export interface ISettingValues {
  notifyEnded: 'never' | 'failed' | 'always';
  notifyDesktop: boolean;
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
  /** Reconnect at once. */
  retry(): void;
  readonly experiments: IExperiments;
  readonly cluster: IClusterModel;
  /** Follow the trials that hold slots; the document is followed while it has followers. */
  followTrials(onTrials: (trials: readonly ITrialLine[]) => void): IDisposable;
}

export const IDetJupyter = new Token<IDetJupyter>(
  'det-jupyter:IDetJupyter',
  'Experiments, slots and logs of det_jupyter, live, and requests to change them.'
);

/**
 * Elements that show an experiment (a row, a slot, a trial) have its id in this attribute, on which the
 * context menu of schema/commands.json appears. A trial's id is in `data-det-trial`.
 */
export const EXPERIMENT_ATTRIBUTE = 'data-det-experiment';
export const TRIAL_ATTRIBUTE = 'data-det-trial';
/** On a slot: its agent's id, a space, and its id. */
export const SLOT_ATTRIBUTE = 'data-det-slot';
/** On a list of experiments: the ids of selected ones, separated by spaces. */
export const SELECTED_ATTRIBUTE = 'data-det-selected';

/** Ids of commands; `describedBy` has their arguments. Other folders call them by id. */
export const Commands = {
  openExperiment: 'det:open-experiment', // {experiment_id, tab?, trial_id?}       page/
  compare: 'det:compare-experiments', // {experiment_ids}                          page/
  openModel: 'det:open-model', // {model_id}                                       page/
  command: 'det:change-experiment', // {experiment_ids, verb}: pause, activate, cancel, kill, archive, unarchive, delete   shell/
  labelExperiment: 'det:label-experiment', // {experiment_ids, labels?}; asks for them if not given    shell/
  renameExperiment: 'det:rename-experiment', // {experiment_id, name?}; asks for it if not given    shell/
  continueExperiment: 'det:continue-experiment', // {experiment_id}               shell/
  forkExperiment: 'det:fork-experiment', // {experiment_id}                        shell/
  exportExperiment: 'det:export-experiment', // {experiment_id}                    shell/
  openTensorBoard: 'det:open-tensorboard', // {experiment_id}                      shell/
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

/** The commands in the palette, for the current experiment. */
export const OF_EXPERIMENTS = [
  Commands.renameExperiment,
  Commands.labelExperiment,
  Commands.continueExperiment,
  Commands.forkExperiment,
  Commands.exportExperiment,
  Commands.openTensorBoard,
  Commands.copyExperimentId
] as const;
