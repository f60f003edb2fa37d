/** The interfaces of tabs of the view. */
import type { MakeChart } from '../charts/metricboard.js';
import type { IRequestContext } from '../dom/notice.js';
import type { Ask } from '../model/questions.js';
import type { Settings } from '../model/viewsettings.js';
import type { IViewState } from '../model/state.js';

export interface ITabContext {
  /** What buttons need to send requests, and translations. */
  requests: IRequestContext;
  /** Questions to the kernel: logs, series, configuration, checkpoints. */
  ask: Ask;
  settings: Settings;
  makeChart: MakeChart;
}

export interface ITab {
  readonly id: string;
  readonly label: string;
  /** Fill `host`; called once, when the tab is first opened. */
  open(host: HTMLElement): IPanel;
}

export interface IPanel {
  /** Accept a state: those while the panel is shown, and the newest when it is opened. */
  update?(state: IViewState): void;
  /** Set whether it is visible; while it is not, it neither draws nor fetches. */
  setShown?(isShown: boolean): void;
  /** Apply a changed theme. */
  restyle?(): void;
  dispose(): void;
}
