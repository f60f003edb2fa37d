/** A tab of the view, and what it is given. */
import type { MakeChart } from '../charts/metricboard.js';
import type { IRequestContext } from '../dom/notice.js';
import type { Ask } from '../model/questions.js';
import type { Settings } from '../model/viewsettings.js';
import type { IViewState } from '../model/state.js';

export interface ITabContext {
  /** Translations, and requests by buttons. */
  requests: IRequestContext;
  /** Questions to the kernel: logs, series, configuration, checkpoints. */
  ask: Ask;
  settings: Settings;
  makeChart: MakeChart;
}

export interface ITab {
  readonly id: string;
  readonly label: string;
  /** Fill `host`: called once, when the tab is opened for the first time. */
  open(host: HTMLElement): IPanel;
}

export interface IPanel {
  /** A newer state; only those that come while the panel is shown, and the newest when it opens. */
  update?(state: IViewState): void;
  /** Whether it can be seen, first when it is opened: while it cannot, it draws and asks nothing. */
  setShown?(isShown: boolean): void;
  /** The theme has changed. */
  restyle?(): void;
  dispose(): void;
}
