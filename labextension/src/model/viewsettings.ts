/** The user's settings of a view, stored in its model. */

/** The unit of the x axis; time is in seconds since the trial's first report. */
export type Axis = 'step' | 'epoch' | 'time';

export interface ISettings extends Record<string, unknown> {
  axis: Axis;
  log_x: boolean;
  log_y: boolean;
  smooth: boolean;
  table: boolean;
  /** Names of the axes of a search's scatter; empty: the first hyperparameter, its metric. */
  scatter_x: string;
  scatter_y: string;
  /** The open tab. */
  tab: string;
  /** The zoomed range of the x axis, on the first tab and on that of metrics. */
  zoom: readonly [number, number] | null;
  metrics_zoom: readonly [number, number] | null;
  /** Of the metrics tab: chosen metrics (`null`: the first few), trials and smoothing. */
  metrics: string[] | null;
  trials: string;
  smoothing: number;
}

const DEFAULTS: ISettings = {
  axis: 'step',
  log_x: false,
  log_y: false,
  smooth: true,
  table: false,
  scatter_x: '',
  scatter_y: '',
  tab: 'overview',
  zoom: null,
  metrics_zoom: null,
  metrics: null,
  trials: '',
  smoothing: 0.25
};

export class Settings {
  constructor(
    stored: Partial<ISettings> = {},
    private readonly _save: (settings: ISettings) => void = () => undefined
  ) {
    this._value = { ...DEFAULTS, ...stored };
  }

  get value(): ISettings {
    return this._value;
  }

  /** Change settings, save them, and call the listeners; used for changes that the user makes. */
  change(part: Partial<ISettings>): void {
    this.load({ ...this._value, ...part });
    this._save(this._value);
  }

  /** Load settings that another view of the same model has changed. */
  load(stored: Partial<ISettings>): void {
    this._value = { ...DEFAULTS, ...stored };
    this._listeners.forEach(listener => listener());
  }

  onChange(listener: () => void): void {
    this._listeners.push(listener);
  }

  private _value: ISettings;
  private readonly _listeners: (() => void)[] = [];
}
